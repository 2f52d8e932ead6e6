"""The channel ``mailbox``: receives an agent's mail, runs a turn of the model for each message, and sends the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nanobot.bus.events import OutboundMessage
from nanobot.channels.base import BaseChannel

from agent_mailbox import AsyncMailbox, ClosedError, MailboxError, NotFoundError
from agent_mailbox.nanobot import message_tool, origin, prompts, transcript_hooks
from agent_mailbox.nanobot.config import MailboxConfig, open_mailbox
from agent_mailbox.nanobot.delegated import Delegated
from agent_mailbox.nanobot.listener import Listener
from agent_mailbox.nanobot.planner import Planner
from agent_mailbox.nanobot.reporter import Reporter
from agent_mailbox.nanobot.retry import Retry
from agent_mailbox.nanobot.runtime import ERROR_REPLY, gateway_of, is_status, subscribe
from agent_mailbox.nanobot.transcripts import GroupTranscripts
from agent_mailbox.nanobot.turn import CHANNEL, Turn
from agent_mailbox.nanobot.turn_events import END, TurnEvents


class MailboxChannel(BaseChannel):
    """One agent's mailbox as a channel of nanobot."""

    name = CHANNEL
    display_name = "Mailbox"

    def __init__(self, config: Any, bus: Any) -> None:
        super().__init__(MailboxConfig.parse(config), bus)
        self.config: MailboxConfig
        self.box: AsyncMailbox | None = None
        self.delegated = Delegated()
        self.listener: Listener | None = None
        self.transcripts = GroupTranscripts.of(self.config, bus)
        self._retry = Retry()
        self._undo: list[Callable[[], None]] = []
        gateway_of(bus).channel = self

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        return MailboxConfig().to_section()

    def progress_transport_defaults(self) -> tuple[bool, bool]:
        """A peer needs neither progress nor hints about tools."""
        return False, False

    def start_error_message(self, error: Exception) -> str | None:
        return str(error) if isinstance(error, MailboxError | ValueError) else None

    def should_retry_send_error(self, error: Exception) -> bool:
        return not isinstance(error, MailboxError) or error.may_succeed_later

    def turn(self, mail_id: str | None) -> Turn | None:
        """The running turn of this message."""
        return self.listener.turns.get(mail_id) if self.listener is not None and mail_id else None

    async def start(self) -> None:
        """Registers the agent and receives mail until :meth:`stop`."""
        self._retry.stopped.clear()
        box = await self._retry.until_open(lambda: open_mailbox(self.config), "cannot open the mailbox")
        if box is None:
            return
        self.box = box
        planner = Planner(box, self.config, self.is_allowed, self.delegated)
        reporter = Reporter(box, self.delegated)
        listener = self.listener = Listener(self.bus, box, planner, reporter, self._retry, self.config.poll_interval)
        ended = subscribe(self.bus, TurnEvents(self.bus, listener).handle)
        listener.has_turn_events = bool(ended)
        if not ended:
            self.logger.warning("this nanobot has no events for the end of a turn: mail is acknowledged with the first answer")
        self._undo = [*ended, message_tool.hook(self.bus, self)]
        if self.transcripts is not None:
            self.transcripts.me = box.name
            self._undo += transcript_hooks.hook(self.transcripts, self.bus)
        await self._retry.until_open(lambda: self._register(box), "cannot register")
        if self._retry.stopped.is_set():
            return
        self._running = True
        self.logger.info("mailbox of {} in {}", box.name, box.where)
        presence = asyncio.create_task(listener.presence.run())
        try:
            await listener.listen()
        finally:
            presence.cancel()

    async def _register(self, box: AsyncMailbox) -> None:
        await box.register(self.config.card())
        await box.set_status("idle")

    async def stop(self) -> None:
        """Releases claimed messages and marks the agent as offline."""
        self._running = False
        self._retry.stopped.set()
        while self._undo:
            self._undo.pop()()
        box, self.box = self.box, None
        if box is None:
            return
        if self.listener is not None:
            await self.listener.stop()
        try:
            await box.set_status("offline")
        except MailboxError as error:
            self.logger.warning("cannot mark the agent as offline: {}", error)
        await box.close()

    async def send(self, msg: OutboundMessage) -> None:
        """Collects an answer of a turn, or sends a message that is addressed to a peer outside of a turn."""
        if is_status(msg):
            return
        metadata = msg.metadata or {}
        turn = self.turn(metadata.get("mailbox_id"))
        if metadata.get(END):
            if turn is not None:
                turn.ended.set()
            return
        if turn is None and msg.content == ERROR_REPLY and self.listener is not None:
            turn = next((one for one in self.listener.turns.values() if one.is_ours and one.chat_id == msg.chat_id), None)
            if turn is not None:
                turn.is_failed = True
                return
        if turn is not None and turn.is_ours:
            turn.answers.append(msg.content)
            turn.files += msg.media or []
            if self.listener is not None and not self.listener.has_turn_events:
                turn.ended.set()
            return
        await self.send_from(msg, context=None, turn=None)

    async def send_from(self, msg: OutboundMessage, context: Any, turn: Turn | None) -> None:
        """Sends a message to a peer from the request of this context."""
        text, files = msg.content.strip(), msg.media or []
        if not text and not files:
            return
        if self.box is None:
            raise ClosedError("the mailbox is closed", code="closed")
        parts = [{"type": "text", "text": msg.content}] if text else []
        parts += [{"type": "file", "path": path} for path in files]
        draft = {"to": msg.chat_id, "parts": parts, "subject": prompts.subject_of(msg.content) or "files"}
        if turn is None and (context is None or (context.channel, context.chat_id) == (CHANNEL, msg.chat_id)):
            await self._send_late(self.box, draft)
        else:
            await self.box.send({**draft, **origin.fields(context, turn, msg.chat_id, "message")})

    async def _send_late(self, box: AsyncMailbox, draft: dict[str, Any]) -> None:
        """Sends a message to a peer after its turn, such as the result of a subagent. It continues the ttl and trace of the peer's last
        message."""
        draft = {**draft, "automatic": True}
        last = self.listener.last_mail.get(draft["to"]) if self.listener is not None else None
        try:
            await box.send({**draft, "parent": last})
        except NotFoundError:
            # The last message was archived meanwhile. If there is no such peer, this raises the same error again.
            await box.send(draft)
