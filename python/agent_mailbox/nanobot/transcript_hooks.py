"""Where nanobot is listened to for the records of group chats: what is sent, and what is heard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loguru import logger

from agent_mailbox.nanobot.runtime import is_answer
from agent_mailbox.nanobot.transcripts import GroupTranscripts


def hook(transcripts: GroupTranscripts, bus: Any) -> list[Callable[[], None]]:
    """Has what is sent recorded and, where nothing else does, what is heard. Returns how to undo it."""
    undo = [_hook_sent(transcripts, bus)]
    if not has_context_providers():
        undo.append(_hook_heard(transcripts, bus))
    return undo


def _hook_sent(transcripts: GroupTranscripts, bus: Any) -> Callable[[], None]:
    """Wraps the one place that every answer passes, and that knows whether it was sent."""
    from nanobot.channels.manager import ChannelManager

    send_once = ChannelManager._send_once

    async def recorded(channel: Any, msg: Any) -> None:
        await send_once(channel, msg)
        if channel.bus is bus and is_answer(msg):
            try:
                await transcripts.said(msg.channel, msg.chat_id, msg.content, msg.metadata or {})
            except Exception as error:
                # It was sent; an error here would have nanobot send it again.
                logger.warning("what was said in {}:{} is not recorded: {}", msg.channel, msg.chat_id, error)

    ChannelManager._send_once = staticmethod(recorded)
    return lambda: setattr(ChannelManager, "_send_once", staticmethod(send_once))


def _hook_heard(transcripts: GroupTranscripts, bus: Any) -> Callable[[], None]:
    publish = bus.publish_inbound

    async def heard(msg: Any) -> None:
        if not (msg.metadata or {}).get("mailbox_id"):
            try:
                await transcripts.heard(msg.channel, msg.chat_id, msg.sender_id, msg.content, msg.metadata or {})
            except Exception as error:
                # What a person says reaches the agent whether or not it can be recorded.
                logger.warning("what was heard in {}:{} is not recorded: {}", msg.channel, msg.chat_id, error)
        await publish(msg)

    bus.publish_inbound = heard
    return lambda: delattr(bus, "publish_inbound")


def has_context_providers() -> bool:
    """Whether this nanobot (0.3 on) asks tools for what a turn shall be shown."""
    from nanobot.agent.tools.base import Tool

    return hasattr(Tool, "runtime_context_provider")
