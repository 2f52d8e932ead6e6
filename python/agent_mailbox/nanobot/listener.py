"""Receives mail and runs a turn for each message.

A message is claimed, so that two gateways of one agent do not both answer it, and acknowledged after its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from loguru import logger
from nanobot.bus.events import InboundMessage

from agent_mailbox import AsyncMailbox, ClosedError, MailboxError
from agent_mailbox.nanobot.conversations import Conversations
from agent_mailbox.nanobot.planner import Planner
from agent_mailbox.nanobot.presence import LEASE, Presence
from agent_mailbox.nanobot.reporter import Reporter
from agent_mailbox.nanobot.retry import Retry
from agent_mailbox.nanobot.turn import Turn

T = TypeVar("T")

_MAX_PEERS = 1_000
"""Maximum number of peers whose last message is kept."""
MAX_HELD = 32
"""Maximum number of messages that have or await their turn; the rest waits in the mailbox."""
_WAIT = 30.0
"""Maximum seconds of one wait for mail; a message ends it at once."""
_MAX_TURN = 600.0
"""Maximum seconds of a turn in a nanobot without events for the end of a turn."""
_STOP_GRACE = 10.0
"""Maximum seconds from the cancellation of a turn to the stop of this channel in a gateway that shuts down."""


class Listener:
    """The mail of one agent, from the mailbox to nanobot's bus and back."""

    def __init__(self, bus: Any, box: AsyncMailbox, planner: Planner, reporter: Reporter, retry: Retry, interval: float) -> None:
        self.box = box
        self.planner = planner
        self.turns: dict[str, Turn] = {}
        self.conversations = Conversations()
        self.has_turn_events = True
        """Whether nanobot has events for the end of a turn."""
        self.presence = Presence(box, interval, lambda: bool(self.turns), self._claims)
        self.last_mail: OrderedDict[str, str] = OrderedDict()
        """By peer: the id of the last message that had a turn in the conversation with it."""
        self._bus = bus
        self._reporter = reporter
        self._retry = retry
        self._held: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_HELD)

    def _claims(self) -> list[str]:
        return [*self._held, *self.planner.parts.ids]

    async def listen(self) -> None:
        """Receives mail until the mailbox is closed or the channel stops."""
        failures = 0
        while not self._retry.stopped.is_set():
            await self._slots.acquire()
            is_handed_over = False
            mail: dict[str, Any] | None = None
            try:
                mail = await self.box.next(_WAIT, lease=LEASE)
                failures = 0
                if mail is not None:
                    is_handed_over = await self._take(mail)
            except ClosedError:
                return
            except Exception as error:
                # One bad message, or an office that is temporarily unavailable, must not end the channel.
                failures += 1
                if mail is not None:
                    await self._release(mail["id"])
                await self._retry.back_off("cannot take mail", error, failures)
            finally:
                if not is_handed_over:
                    self._slots.release()

    async def _take(self, mail: dict[str, Any]) -> bool:
        """Plans the turn of a message, in order of arrival, and starts a task that runs it. Returns whether it did."""
        if mail["id"] in self._claims():
            # Its lease expired and this process, which still works on it, claimed it again.
            return False
        if await self._planned(self.planner.is_early_part(mail), mail, lambda: False):
            for dropped in self.planner.parts.keep(mail):
                await self.box.ack(dropped["id"])
            return False
        turn = await self._planned(self.planner.plan(mail), mail, lambda: self.planner.message(mail))
        self._held.add(mail["id"])
        task = asyncio.create_task(self._handle(mail, turn))
        self._tasks.add(task)
        task.add_done_callback(self._handled)
        return True

    async def _planned(self, planning: Awaitable[T], mail: dict[str, Any], default: Callable[[], T]) -> T:
        """Awaits a decision about a message. If the office refuses it, the message is read as a plain one, never dropped."""
        try:
            return await planning
        except ClosedError:
            raise
        except MailboxError as error:
            if error.may_succeed_later and error.code != "internal":
                # The caller releases the message, and it is claimed again.
                raise
            logger.warning("mail {} is read as a message: {}", mail["id"], error)
            return default()

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a mail could not be handled: {}", error)

    async def _handle(self, mail: dict[str, Any], turn: Turn | None) -> None:
        """Runs the turn of a message and acknowledges it. A message that is not acknowledged is released."""
        is_done, ids = False, [mail["id"], *(turn.early if turn else [])]
        self._held.update(ids)
        try:
            if turn is not None:
                async with self.conversations.turn(turn.session_key):
                    if not await self._run(turn):
                        return
            await self._retry.until_done(lambda: self.box.ack(*ids), f"acknowledging {mail['id']}")
            is_done = True
        finally:
            self._held.difference_update(ids)
            if not is_done:
                await asyncio.shield(self._release(*ids))

    async def _run(self, turn: Turn) -> bool:
        """Runs a turn. Returns whether it ended, which one that a stopping gateway cancels does not."""
        self.turns[turn.id] = turn
        self.presence.changed.set()
        if turn.is_ours:
            self.last_mail[turn.chat_id] = turn.id
            self.last_mail.move_to_end(turn.chat_id)
            while len(self.last_mail) > _MAX_PEERS:
                self.last_mail.popitem(last=False)
        try:
            await self._bus.publish_inbound(
                InboundMessage(
                    channel=turn.channel,
                    sender_id=turn.mail["from"],
                    chat_id=turn.chat_id,
                    content=turn.content,
                    metadata=turn.metadata,
                    session_key_override=turn.session_key,
                )
            )
            await self._retry.until_done(lambda: self._reporter.start(turn), f"task {turn.task}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(turn.ended.wait(), None if self.has_turn_events else _MAX_TURN)
            if not turn.is_completed and self.has_turn_events:
                # A gateway that stops cancels its turns before it stops its channels.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._retry.stopped.wait(), _STOP_GRACE)
                if self._retry.stopped.is_set():
                    return False
                turn.is_failed = True
            await self._retry.until_done(lambda: self._reporter.finish(turn), f"the answer to {turn.id}")
            return True
        finally:
            del self.turns[turn.id]
            self.presence.changed.set()

    async def _release(self, *ids: str) -> None:
        try:
            await self.box.release(*ids)
        except MailboxError as error:
            logger.debug("cannot release {}: {}", ids, error)

    async def stop(self) -> None:
        """Cancels running turns and releases their messages."""
        self.box.wake()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
