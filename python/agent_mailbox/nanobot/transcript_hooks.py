"""Hooks into nanobot that record the sent and received messages of group chats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loguru import logger

from agent_mailbox.nanobot.runtime import is_answer
from agent_mailbox.nanobot.transcripts import GroupTranscripts


def hook(transcripts: GroupTranscripts, bus: Any) -> list[Callable[[], None]]:
    """Records sent messages and, if no context provider does, received ones. Returns functions that remove the hooks."""
    undo = [_hook_sent(transcripts, bus)]
    if not has_context_providers():
        undo.append(_hook_received(transcripts, bus))
    return undo


def _hook_sent(transcripts: GroupTranscripts, bus: Any) -> Callable[[], None]:
    """Wraps the one function that every answer passes and that knows whether it was sent."""
    from nanobot.channels.manager import ChannelManager

    send_once = ChannelManager._send_once

    async def recorded(channel: Any, msg: Any) -> None:
        await send_once(channel, msg)
        if channel.bus is bus and is_answer(msg):
            try:
                await transcripts.record_sent(msg.channel, msg.chat_id, msg.content, msg.metadata or {})
            except Exception as error:
                # An error here would make nanobot send the message again.
                logger.warning("cannot record a sent message of {}:{}: {}", msg.channel, msg.chat_id, error)

    ChannelManager._send_once = staticmethod(recorded)
    return lambda: setattr(ChannelManager, "_send_once", staticmethod(send_once))


def _hook_received(transcripts: GroupTranscripts, bus: Any) -> Callable[[], None]:
    publish = bus.publish_inbound

    async def recorded(msg: Any) -> None:
        if not (msg.metadata or {}).get("mailbox_id"):
            try:
                await transcripts.record_received(msg.channel, msg.chat_id, msg.sender_id, msg.content, msg.metadata or {})
            except Exception as error:
                # The agent gets the message whether or not it can be recorded.
                logger.warning("cannot record a received message of {}:{}: {}", msg.channel, msg.chat_id, error)
        await publish(msg)

    bus.publish_inbound = recorded
    return lambda: delattr(bus, "publish_inbound")


def has_context_providers() -> bool:
    """Whether this nanobot (0.3 and later) gets context for a turn from tools."""
    from nanobot.agent.tools.base import Tool

    return hasattr(Tool, "runtime_context_provider")
