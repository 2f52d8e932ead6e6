"""The channel ``mailbox``: hears an agent's mail, gives each its turn, and sends what the model answers.

A mail is claimed, so that two gateways of one name do not both answer it, and acknowledged after its turn. The end of a turn is
nanobot's event "idle", which comes whether or not there was an answer; an empty message of ours is then sent through the outbound
queue behind the answers, and when it arrives here all of them have.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from nanobot.bus.events import InboundMessage, OutboundMessage
from nanobot.channels.base import BaseChannel

from agent_mailbox import AsyncMailbox, ClosedError, MailboxError, UnavailableError
from agent_mailbox.nanobot import words
from agent_mailbox.nanobot.config import MailboxConfig
from agent_mailbox.nanobot.conversations import Conversations
from agent_mailbox.nanobot.runtime import ERROR_REPLY, gateway_of, is_status, subscribe
from agent_mailbox.nanobot.transcripts import GroupTranscripts
from agent_mailbox.nanobot.turn import CHANNEL, Desk, Turn

MAX_HELD = 32
"""Mails that are claimed at once; the rest waits in the mailbox."""
END = "_mailbox_end"
_WAIT = 30.0
"""Seconds that one look at the mailbox waits. Only a bound: mail ends the wait at once."""
_LEASE = 900.0
"""Seconds for which a server keeps a mail from others; the mail of a gateway that died comes back after them."""
_MAX_BACKOFF = 30.0
_BLIND = 600.0
"""Seconds that a turn may take in a nanobot that does not tell when one ends."""
_STOPPING = 10.0
"""Seconds in which a gateway that cancelled a turn because it stops also stops this channel."""
_SETTLED = 0.1
"""Seconds from the beginning or end of a turn until it is shown."""
_SWALLOWED = 2.0
"""Seconds in which an answer that a running turn did not take begins a turn of its own."""


class MailboxChannel(BaseChannel):
    """One agent's mailbox as a channel of nanobot."""

    name = CHANNEL
    display_name = "Mailbox"

    def __init__(self, config: Any, bus: Any) -> None:
        super().__init__(MailboxConfig.parse(config), bus)
        self.config: MailboxConfig
        self.desk: Desk | None = None
        self.box: AsyncMailbox | None = None
        self._turns: dict[str, Turn] = {}
        self._held: set[str] = set()
        self._handling: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MAX_HELD)
        self._conversations = Conversations()
        self._changed = asyncio.Event()
        self._unsubscribe: list[Any] = []
        self._stopped = asyncio.Event()
        self.transcripts = GroupTranscripts.of(self.config, bus)
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
        return not isinstance(error, MailboxError) or _is_passing(error)

    def turn(self, mail_id: str | None) -> Turn | None:
        """The turn under way for this mail."""
        return self._turns.get(mail_id) if mail_id else None

    # Its life.

    async def start(self) -> None:
        """Registers the agent and listens until :meth:`stop`."""
        self._stopped.clear()
        box = await self._open()
        if box is None:
            return
        self.box, self.desk = box, Desk(box, self.config, self.is_allowed)
        self._unsubscribe = subscribe(self.bus, self._on_event)
        if not self._unsubscribe:
            self.logger.warning("this nanobot does not tell when a turn ends: mail is acknowledged with the first answer")
        if self.transcripts is not None:
            self.transcripts.me = box.name
            self.transcripts.hook()
        await self._register(box)
        if self._stopped.is_set():
            return
        self._running = True
        self.logger.info("mailbox of {} in {}", box.name, box.where)
        presence = asyncio.create_task(self._presence(box))
        try:
            await self._listen(box, self.desk)
        finally:
            presence.cancel()

    async def stop(self) -> None:
        """Gives back what is held and says goodbye."""
        self._running = False
        self._stopped.set()
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        if self.transcripts is not None:
            self.transcripts.unhook()
        box, self.box = self.box, None
        if box is None:
            return
        box.wake()
        for task in list(self._handling):
            task.cancel()
        await asyncio.gather(*self._handling, return_exceptions=True)
        try:
            await box.set_status("offline")
        except MailboxError as error:
            self.logger.warning("no goodbye to the office: {}", error)
        await box.close()

    async def _open(self) -> AsyncMailbox | None:
        """The mailbox, however long the office cannot be reached; None where the channel is stopped before."""
        failures = 0
        while not self._stopped.is_set():
            try:
                return await open_mailbox(self.config)
            except UnavailableError as error:
                failures += 1
                await self._back_off("cannot open the mailbox", error, failures)
        return None

    async def _register(self, box: AsyncMailbox) -> None:
        failures = 0
        while not self._stopped.is_set():
            try:
                await box.register(self.config.card())
                await box.set_status("idle")
                return
            except MailboxError as error:
                if not _is_passing(error):
                    raise
                failures += 1
                await self._back_off("cannot register", error, failures)

    async def _back_off(self, what: str, error: Exception, failures: int) -> None:
        wait = getattr(error, "retry_after", None) or min(_MAX_BACKOFF, 0.5 * 2 ** min(failures, 10))
        self.logger.warning("{}: {}; retry in {} s", what, error, wait)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), wait)

    async def _presence(self, box: AsyncMailbox) -> None:
        """Busy while a mail has its turn, idle while it listens; a heartbeat in between."""
        is_shown_busy = False
        while True:
            self._changed.clear()
            is_busy = bool(self._turns)
            try:
                if is_busy != is_shown_busy:
                    await box.set_status("busy" if is_busy else "idle")
                    is_shown_busy = is_busy
                else:
                    await box.heartbeat()
            except ClosedError:
                return
            except MailboxError as error:
                self.logger.warning("heartbeat failed: {}", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self.config.poll_interval)
                # A turn that is over by then is not worth two writes beside those of the turn itself.
                await asyncio.sleep(_SETTLED)

    # Mail that comes.

    async def _listen(self, box: AsyncMailbox, desk: Desk) -> None:
        failures = 0
        while self._running:
            await self._room.acquire()
            is_handed_over = False
            mail: dict[str, Any] | None = None
            try:
                mail = await box.next(_WAIT, lease=_LEASE)
                failures = 0
                # A server hands a mail out again when its lease ends, also to whoever is still at work on it.
                if mail is not None and mail["id"] not in self._held:
                    # In the order in which they came; what takes long is done by a task of its own.
                    turn = await self._plan(desk, mail)
                    self._held.add(mail["id"])
                    task = asyncio.create_task(self._handle(box, desk, mail, turn))
                    self._handling.add(task)
                    task.add_done_callback(self._handled)
                    is_handed_over = True
            except ClosedError:
                return
            except Exception as error:
                # One bad mail, or an office that is away for now, must not end the channel.
                failures += 1
                if mail is not None:
                    await self._give_back(box, mail["id"])
                await self._back_off("cannot take mail", error, failures)
            finally:
                if not is_handed_over:
                    self._room.release()

    async def _plan(self, desk: Desk, mail: dict[str, Any]) -> Turn | None:
        """What a mail needs. Where the office refuses to say, the model sees it as a message; it is never dropped for that."""
        try:
            return await desk.plan(mail)
        except ClosedError:
            raise
        except MailboxError as error:
            if _is_passing(error) and error.code != "internal":
                # Given back, and comes again.
                raise
            self.logger.warning("mail {} is read as a message: {}", mail["id"], error)
            return desk.message(mail)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._handling.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            self.logger.error("a mail could not be handled: {}", error)

    async def _handle(self, box: AsyncMailbox, desk: Desk, mail: dict[str, Any], turn: Turn | None) -> None:
        """Gives a mail its turn and acknowledges it. What is not acknowledged is given back and comes again."""
        is_done = False
        try:
            if turn is not None:
                async with self._conversations.turn(turn.session_key):
                    if not await self._run(desk, turn):
                        return
            await self._retrying(lambda: box.ack(mail["id"]), f"acknowledging {mail['id']}")
            is_done = True
        finally:
            self._held.discard(mail["id"])
            if not is_done:
                await asyncio.shield(self._give_back(box, mail["id"]))

    async def _run(self, desk: Desk, turn: Turn) -> bool:
        """Returns whether the turn came to an end; one that a stopping gateway cancels does not."""
        self._turns[turn.id] = turn
        self._changed.set()
        try:
            await self.bus.publish_inbound(
                InboundMessage(
                    channel=turn.channel,
                    sender_id=turn.mail["from"],
                    chat_id=turn.chat_id,
                    content=turn.content,
                    metadata=turn.metadata,
                    session_key_override=turn.session_key,
                )
            )
            await self._retrying(lambda: desk.started(turn), f"task {turn.task}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(turn.ended.wait(), None if self._unsubscribe else _BLIND)
            if not turn.is_completed and self._unsubscribe:
                # A gateway that stops cancels its turns before it stops its channels.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), _STOPPING)
                if self._stopped.is_set():
                    return False
                turn.is_failed = True
            await self._retrying(lambda: desk.finish(turn), f"the answer to {turn.id}")
            return True
        finally:
            del self._turns[turn.id]
            self._changed.set()

    async def _retrying(self, verb: Any, what: str) -> Any:
        """Does a verb of the office, again while the office cannot be used. What it refuses for good is logged, not tried again."""
        failures = 0
        while True:
            try:
                return await verb()
            except ClosedError:
                raise
            except MailboxError as error:
                if not _is_passing(error):
                    self.logger.warning("{}: {}", what, error)
                    return None
                failures += 1
                await self._back_off(f"the office cannot be used for {what}", error, failures)
                if self._stopped.is_set():
                    raise

    async def _give_back(self, box: AsyncMailbox, mail_id: str) -> None:
        try:
            await box.release(mail_id)
        except MailboxError as error:
            self.logger.debug("cannot give {} back: {}", mail_id, error)

    # What nanobot tells.

    async def _on_event(self, event: Any) -> None:
        """Follows the turns: of all conversations whether they are busy, of our mail when it ends."""
        context, kind = event.context, type(event).__name__
        turn = self.turn((context.metadata or {}).get("mailbox_id"))
        if kind == "SessionTurnStarted":
            self._conversations.started(context.session_key)
            if turn is not None:
                turn.has_started = True
        elif kind == "TurnCompleted":
            if turn is not None:
                turn.is_completed = True
                turn.is_failed = getattr(event, "outcome", "completed") == "failed"
        elif event.status == "idle":
            self._conversations.idle(context.session_key)
            if turn is not None:
                await self._end(turn)
            for other in self._turns.values():
                if other.session_key == context.session_key and other is not turn and not other.has_started:
                    # A turn that ran already took it in, unless it begins one of its own now.
                    asyncio.get_running_loop().call_later(_SWALLOWED, self._end_swallowed, other)

    def _end_swallowed(self, turn: Turn) -> None:
        if not turn.has_started:
            turn.is_completed = True
            turn.ended.set()

    async def _end(self, turn: Turn) -> None:
        if not turn.is_ours:
            turn.ended.set()
            return
        end = OutboundMessage(channel=self.name, chat_id=turn.chat_id, content="", metadata={"mailbox_id": turn.id, END: True})
        await self.bus.publish_outbound(end)

    # What goes out.

    async def send(self, msg: OutboundMessage) -> None:
        """Takes the answer of a turn, or sends what the model addressed to a peer by itself."""
        if is_status(msg):
            return
        metadata = msg.metadata or {}
        turn = self.turn(metadata.get("mailbox_id"))
        if metadata.get(END):
            if turn is not None:
                turn.ended.set()
            return
        if turn is None and msg.content == ERROR_REPLY:
            turn = next((one for one in self._turns.values() if one.is_ours and one.chat_id == msg.chat_id), None)
            if turn is not None:
                turn.is_failed = True
                return
        if turn is not None and turn.is_ours:
            turn.answers.append(msg.content)
            if not self._unsubscribe:
                turn.ended.set()
            return
        if not msg.content.strip() and not msg.media:
            return
        box = self.box
        if box is None:
            raise ClosedError("the mailbox is closed", code="closed")
        parts = [{"type": "text", "text": msg.content}] if msg.content.strip() else []
        parts += [{"type": "file", "path": path} for path in msg.media or []]
        await box.send({"to": msg.chat_id, "parts": parts, "subject": words.subject_of(msg.content) or "files"})


def _is_passing(error: MailboxError) -> bool:
    """Whether the same may succeed later: the office cannot be used now, or a key or limit has to change first."""
    return error.code in ("unavailable", "internal", "too_many_requests", "unauthorized")


async def open_mailbox(config: MailboxConfig) -> AsyncMailbox:
    """The agent's mailbox, in the directory or on the server that the configuration names."""
    if config.server_url:
        if not config.key:
            raise ValueError(
                "there is no key for channels.mailbox.serverUrl: `amb register NAME --server URL` keeps one for agentId, or set apiKey or "
                "MAILBOX_API_KEY"
            )
        return await AsyncMailbox.server(config.server_url, config.key)
    if not config.agent_id.strip():
        raise ValueError("channels.mailbox.agentId is empty: give this agent a name")
    return await AsyncMailbox.directory(
        config.mailboxes_root, config.agent_id, poll_interval=config.poll_interval, transcripts=config.transcripts_root
    )
