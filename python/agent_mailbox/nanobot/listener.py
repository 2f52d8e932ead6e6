"""Takes mail and gives each its turn.

A message is claimed, so that two gateways of one name do not both answer it, and acknowledged after its turn.
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
"""Peers whose last message is remembered."""
MAX_HELD = 32
"""Messages that have or await their turn at once; the rest waits in the mailbox."""
_WAIT = 30.0
"""Seconds that one look at the mailbox waits. Only a bound: mail ends the wait at once."""
_BLIND = 600.0
"""Seconds that a turn may take in a nanobot that does not tell when one ends."""
_STOPPING = 10.0
"""Seconds in which a gateway that cancelled a turn because it stops also stops this channel."""


class Listener:
    """The mail of one agent, from the mailbox to nanobot's bus and back."""

    def __init__(self, bus: Any, box: AsyncMailbox, planner: Planner, reporter: Reporter, retry: Retry, interval: float) -> None:
        self.box = box
        self.planner = planner
        self.turns: dict[str, Turn] = {}
        self.conversations = Conversations()
        self.is_told = True
        """Whether nanobot tells when a turn ends."""
        self.presence = Presence(box, interval, lambda: bool(self.turns), self._claims)
        self.last_mail: OrderedDict[str, str] = OrderedDict()
        """By peer, the id of the mail that last had a turn in the conversation with it."""
        self._bus = bus
        self._reporter = reporter
        self._retry = retry
        self._held: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MAX_HELD)

    def _claims(self) -> list[str]:
        return [*self._held, *self.planner.parts.ids]

    async def listen(self) -> None:
        """Takes mail until the mailbox is closed or the channel stops."""
        failures = 0
        while not self._retry.stopped.is_set():
            await self._room.acquire()
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
                # One bad message, or an office that is away for now, must not end the channel.
                failures += 1
                if mail is not None:
                    await self._give_back(mail["id"])
                await self._retry.back_off("cannot take mail", error, failures)
            finally:
                if not is_handed_over:
                    self._room.release()

    async def _take(self, mail: dict[str, Any]) -> bool:
        """Returns whether a task of its own handles the mail. In the order in which they came; what takes long is done by that task."""
        if mail["id"] in self._claims():
            # Its lease ran out, and it was handed out again to whoever is still at work on it.
            return False
        if await self._judged(self.planner.is_early_part(mail), mail, lambda: False):
            for dropped in self.planner.parts.keep(mail):
                await self.box.ack(dropped["id"])
            return False
        turn = await self._judged(self.planner.plan(mail), mail, lambda: self.planner.message(mail))
        self._held.add(mail["id"])
        task = asyncio.create_task(self._handle(mail, turn))
        self._tasks.add(task)
        task.add_done_callback(self._handled)
        return True

    async def _judged(self, judging: Awaitable[T], mail: dict[str, Any], otherwise: Callable[[], T]) -> T:
        """What a message needs. Where the office refuses to say, the model sees it as a message; it is never dropped for that."""
        try:
            return await judging
        except ClosedError:
            raise
        except MailboxError as error:
            if error.may_succeed_later and error.code != "internal":
                # Given back, and comes again.
                raise
            logger.warning("mail {} is read as a message: {}", mail["id"], error)
            return otherwise()

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a mail could not be handled: {}", error)

    async def _handle(self, mail: dict[str, Any], turn: Turn | None) -> None:
        """Gives a message its turn and acknowledges it. What is not acknowledged is given back and comes again."""
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
                await asyncio.shield(self._give_back(*ids))

    async def _run(self, turn: Turn) -> bool:
        """Returns whether the turn came to an end; one that a stopping gateway cancels does not."""
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
                await asyncio.wait_for(turn.ended.wait(), None if self.is_told else _BLIND)
            if not turn.is_completed and self.is_told:
                # A gateway that stops cancels its turns before it stops its channels.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._retry.stopped.wait(), _STOPPING)
                if self._retry.stopped.is_set():
                    return False
                turn.is_failed = True
            await self._retry.until_done(lambda: self._reporter.finish(turn), f"the answer to {turn.id}")
            return True
        finally:
            del self.turns[turn.id]
            self.presence.changed.set()

    async def _give_back(self, *ids: str) -> None:
        try:
            await self.box.release(*ids)
        except MailboxError as error:
            logger.debug("cannot give {} back: {}", ids, error)

    async def stop(self) -> None:
        """Ends what is under way, and gives back what was not done."""
        self.box.wake()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
