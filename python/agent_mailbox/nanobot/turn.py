"""One mail and its turn: what is done before the model sees it, and what becomes of the model's answer.

Every step may be repeated: a process that dies gives its claims back, and the next one begins the mail again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from loguru import logger

from agent_mailbox import AsyncMailbox, ConflictError, LoopRefusedError, Mailbox, NotFoundError, provokes_answer
from agent_mailbox.nanobot import words
from agent_mailbox.nanobot.config import MailboxConfig
from agent_mailbox.nanobot.runtime import is_empty_answer

CHANNEL = "mailbox"
_PROGRESS = ("accepted", "working")
ENDED = ("completed", "failed", "rejected")


@dataclass
class Turn:
    """A mail on its way through the model."""

    mail: dict[str, Any]
    content: str
    channel: str
    chat_id: str
    session_key: str
    metadata: dict[str, Any]
    task: str | None = None
    """The task that the turn's answer completes."""
    is_fresh: bool = False
    """Whether that task has yet to be shown as being worked on."""
    answers: list[str] = field(default_factory=list)
    is_failed: bool = False
    is_moved: bool = False
    """Whether the model itself moved the task."""
    has_started: bool = False
    is_completed: bool = False
    """Whether it came to its end; else it was cancelled."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        return self.mail["id"]

    @property
    def is_ours(self) -> bool:
        """Whether the answer comes back to this channel."""
        return self.channel == CHANNEL

    def answer(self) -> str | None:
        """What the model said; None where it wants nothing sent."""
        text = "\n\n".join(part for part in self.answers if not is_empty_answer(part)).strip()
        return None if not text or text == words.NO_ANSWER else text


def _bound(memory: dict[str, Any]) -> None:
    while len(memory) > 1_000:
        memory.pop(next(iter(memory)))


class Desk:
    """Decides what a mail needs, and carries the answer of its turn to the office."""

    def __init__(self, box: AsyncMailbox, config: MailboxConfig, is_allowed: Callable[[str], bool]) -> None:
        self.box = box
        self.config = config
        self._is_allowed = is_allowed
        self.sending = asyncio.Lock()
        """Held by a tool from before it sends until it has noted what came of it; an answer may be here sooner than that."""
        self.told: dict[str, None] = {}
        """Tasks of which the model was told in its own turn that the office rejected them."""
        self.awaited: dict[str, set[str]] = {}
        """For a task of ours, the tasks given to others for it whose end the model has not seen yet."""

    def note_told(self, task: str) -> None:
        self.told[task] = None
        _bound(self.told)

    def note_awaited(self, task: str, piece: str) -> None:
        self.awaited.setdefault(task, set()).add(piece)
        _bound(self.awaited)

    async def plan(self, mail: dict[str, Any]) -> Turn | None:
        """The turn that a mail needs; None where it needs none and is done with."""
        kind, task = mail["kind"], mail.get("task") or {}
        if kind == "task_update" or mail.get("reply_to"):
            async with self.sending:
                pass
        if kind == "task_update":
            if task.get("state") in _PROGRESS and not self.config.progress_turns:
                return None
            if task.get("state") == "rejected" and task.get("id") in self.told:
                del self.told[task["id"]]
                return None
        callback = await self._callback(mail)
        if callback is not None:
            return await self._returned(mail, callback)
        if not self._is_allowed(mail["from"]):
            # A directory has refused it before; on a server whoever is connected can write.
            logger.warning("mail {} is from {}, who is not in allowFrom", mail["id"], mail["from"])
            if kind == "task" and task.get("id"):
                await self._move(task["id"], "rejected", f"unauthorized: {self.box.name} does not take tasks from {mail['from']}")
            return None
        if kind == "task" and task.get("id"):
            try:
                return await self._task(mail, task)
            except NotFoundError:
                # A task that this office does not keep is read like a message.
                pass
        return self.message(mail)

    def message(self, mail: dict[str, Any]) -> Turn:
        """The turn of a mail that is read and perhaps answered, and moves no task."""
        is_answered = provokes_answer(mail)
        return self._turn(mail, words.for_message(mail["from"]) if is_answered else words.for_silence())

    def _turn(self, mail: dict[str, Any], note: str, **more: Any) -> Turn:
        sender = mail["from"]
        where = {"channel": CHANNEL, "chat_id": sender, "session_key": f"{CHANNEL}:{sender}"}
        metadata = {
            "message_id": mail["id"],
            "mailbox_id": mail["id"],
            "mailbox_from": sender,
            "mailbox_type": mail["kind"],
            "mailbox_task": mail.get("task"),
            "mailbox_parts": mail.get("parts"),
            "mailbox_ttl": mail.get("ttl"),
            "mailbox_trace": mail.get("trace"),
            "reply_to": mail.get("reply_to"),
            **more.pop("metadata", {}),
        }
        content = f"{Mailbox.render(mail)}{note}"
        return Turn(mail=mail, content=content, metadata=metadata, **{**where, **more})

    async def _callback(self, mail: dict[str, Any]) -> dict[str, Any] | None:
        """Where the conversation is that this mail answers. Read from what we sent ourselves, never from what came."""
        task, reply_to = mail.get("task") or {}, mail.get("reply_to")
        try:
            if mail["kind"] == "task_update" and task.get("id"):
                ours = await self.box.task(task["id"])
                is_answer = ours["owner"] == self.box.name and ours["assignee"] == mail["from"]
            elif reply_to:
                ours = await self.box.message(reply_to)
                is_answer = ours["from"] == self.box.name and ours["to"] == mail["from"]
            else:
                return None
        except NotFoundError:
            return None
        callback = ours.get("callback") or {}
        return callback if is_answer and callback.get("channel") and callback.get("chat_id") else None

    async def _returned(self, mail: dict[str, Any], callback: dict[str, Any]) -> Turn:
        """The turn of an answer, in the conversation that asked."""
        channel, chat_id = str(callback["channel"]), str(callback["chat_id"])
        where = {"channel": channel, "chat_id": chat_id, "session_key": callback.get("session_id") or f"{channel}:{chat_id}"}
        route = callback.get("route") or {}
        if channel != CHANNEL:
            # The id of the mail is none of that channel's.
            metadata = {"message_id": None, **route}
            return self._turn(mail, words.for_update(mail["from"]), metadata=metadata, **where)
        parent = callback.get("task")
        if mail["kind"] == "task_update" and parent:
            awaited = self.awaited.get(parent)
            if awaited is not None:
                awaited.discard(mail["task"]["id"])
        note = words.for_piece(mail["from"], chat_id, parent) if parent else words.for_silence()
        return self._turn(mail, note, task=parent, **where)

    async def _task(self, mail: dict[str, Any], task: dict[str, Any]) -> Turn | None:
        sender, id = mail["from"], task["id"]
        is_repeated = False
        if self.config.accept_tasks:
            try:
                await self.box.set_task_state(id, "accepted")
            except ConflictError as error:
                if error.code == "conflict":
                    # The office has rejected it, and its owner was told why.
                    return None
                is_repeated = True
        if is_repeated or not self.config.accept_tasks:
            state = (await self.box.task(id))["state"]
            if state in ENDED:
                return None
            is_repeated = state in _PROGRESS
        note = words.for_task(sender, id, is_accepted=self.config.accept_tasks, is_repeated=is_repeated)
        return self._turn(mail, note, task=id, is_fresh=self.config.accept_tasks and not is_repeated)

    async def started(self, turn: Turn) -> None:
        """Shows that the task is being worked on."""
        if turn.task is not None and turn.is_fresh:
            await self._move(turn.task, "working", None)

    async def finish(self, turn: Turn) -> None:
        """Carries the answer to the office."""
        if not turn.is_ours:
            return
        if turn.task is not None:
            if not turn.is_moved:
                await self._finish_task(turn, turn.task)
        elif turn.mail["kind"] != "task_update" and provokes_answer(turn.mail):
            text = words.failed(self.box.name) if turn.is_failed else turn.answer()
            if text is not None:
                await self._reply(turn.mail, text, key=f"nanobot:{turn.id}")

    async def _finish_task(self, turn: Turn, task: str) -> None:
        text = turn.answer()
        if turn.is_failed:
            return await self._move(task, "failed", words.failed(self.box.name))
        if await self._is_waiting(task):
            return await self._move(task, "working", text)
        if text is None:
            return await self._move(task, "failed", f"{self.box.name} gave no answer.")
        first, *rest = words.pieces(text)
        await self._move(task, "completed", first)
        for at, piece in enumerate(rest, 2):
            mail = turn.mail if turn.mail["kind"] == "task" else await self.box.message((await self.box.task(task))["message_id"])
            await self._reply(mail, piece, key=f"nanobot:{turn.id}:{at}")

    async def _is_waiting(self, task: str) -> bool:
        """Whether others still work on pieces of this task."""
        if self.awaited.get(task):
            return True
        self.awaited.pop(task, None)
        given = await self.box.tasks(owned=True, open=True)
        return any((one.get("callback") or {}).get("task") == task for one in given)

    async def _move(self, task: str, state: str, note: str | None) -> None:
        try:
            await self.box.set_task_state(task, state, note[:10_000] if note else None)
        except ConflictError:
            # It stands there already, before a restart, or the office has ended it; its owner was told.
            pass

    async def _reply(self, mail: dict[str, Any], text: str, *, key: str) -> None:
        for at, piece in enumerate(words.pieces(text), 1):
            draft = {
                "to": mail["from"],
                "text": piece,
                "reply_to": mail["id"],
                "automatic": True,
                "idempotency_key": key if at == 1 else f"{key}:{at}",
            }
            try:
                await self.box.send(draft)
            except LoopRefusedError:
                # Two agents that answer each other have reached their ttl: that is what it is for.
                return
            except ConflictError:
                # Answered before a restart, in other words.
                return
