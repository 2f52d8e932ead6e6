"""Decides what a message needs: nothing, a turn of its own, or a turn in the conversation that it answers.

Every step is idempotent: the claims of a process that dies are released, and the next one starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loguru import logger

from agent_mailbox import AsyncMailbox, ConflictError, Mailbox, NotFoundError, provokes_answer, quoted
from agent_mailbox.nanobot import parts, prompts
from agent_mailbox.nanobot.config import MailboxConfig
from agent_mailbox.nanobot.delegated import Delegated
from agent_mailbox.nanobot.turn import CHANNEL, ENDED, PROGRESS, Turn


class Planner:
    """Plans the turn of a message, and accepts or rejects its task."""

    def __init__(self, box: AsyncMailbox, config: MailboxConfig, is_allowed: Callable[[str], bool], delegated: Delegated) -> None:
        self._box = box
        self._config = config
        self._is_allowed = is_allowed
        self._delegated = delegated
        self.parts = parts.Parts()

    async def plan(self, mail: dict[str, Any]) -> Turn | None:
        """The turn that a message needs; None if it needs none."""
        kind, task = mail["kind"], mail.get("task") or {}
        if kind == "task_update" or mail.get("reply_to"):
            async with self._delegated.sending:
                pass
        if kind == "task_update":
            if task.get("state") in PROGRESS and not self._config.progress_turns:
                return None
            if task.get("state") == "rejected" and self._delegated.take_rejected(task.get("id")):
                return None
        ours = await self._ours(mail)
        early = await self._early(mail) if ours is not None else []
        turn = await self._turn_of(parts.joined(mail, early), ours)
        if turn is not None:
            turn.early = [part["id"] for part in early]
        return turn

    async def is_early_part(self, mail: dict[str, Any]) -> bool:
        """Whether this is an early part of the result of a task that this agent gave. It is kept until the last part arrives."""
        return parts.is_early(mail) and await self._ours(mail) is not None

    async def _turn_of(self, mail: dict[str, Any], ours: dict[str, Any] | None) -> Turn | None:
        kind, task = mail["kind"], mail.get("task") or {}
        callback = (ours or {}).get("callback") or {}
        if callback.get("channel") and callback.get("chat_id"):
            return self._returned(mail, callback)
        if ours is None and not self._is_allowed(mail["from"]):
            # A directory has refused it before; on a server every connected agent can write.
            logger.warning("mail {} is from {!r}, who is not in allowFrom", mail["id"], mail["from"])
            if kind == "task" and task.get("id"):
                await self._reject(task["id"], mail["from"])
            return None
        if kind == "task" and task.get("id"):
            try:
                return await self._task(mail, task)
            except NotFoundError:
                # A task that this office does not know is read as a message.
                pass
        return self.message(mail)

    def message(self, mail: dict[str, Any]) -> Turn:
        """The turn of a message without a task."""
        return _turn(mail, prompts.for_message(mail["from"]) if provokes_answer(mail) else prompts.for_silence())

    async def _ours(self, mail: dict[str, Any]) -> dict[str, Any] | None:
        """The agent's own task or message that a message answers. The callback is read from it, never from the received message."""
        task, reply_to = mail.get("task") or {}, mail.get("reply_to")
        try:
            if mail["kind"] == "task_update" and task.get("id"):
                ours = await self._box.task(task["id"])
                is_answer = ours["owner"] == self._box.name and ours["assignee"] == mail["from"]
            elif reply_to:
                ours = await self._box.message(reply_to)
                is_answer = ours["from"] == self._box.name and ours["to"] == mail["from"]
            else:
                return None
        except NotFoundError:
            return None
        return ours if is_answer else None

    def _returned(self, mail: dict[str, Any], callback: dict[str, Any]) -> Turn:
        """The turn of an answer, in the conversation of the question."""
        channel, chat_id = str(callback["channel"]), str(callback["chat_id"])
        where = {"channel": channel, "chat_id": chat_id, "session_key": callback.get("session_id") or f"{channel}:{chat_id}"}
        if channel != CHANNEL:
            # The id of the mail is not an id of that channel.
            metadata = {"message_id": None, **(callback.get("route") or {})}
            return _turn(mail, prompts.for_update(mail["from"]), metadata=metadata, **where)
        parent = callback.get("task")
        if mail["kind"] == "task_update" and parent:
            self._delegated.remove_subtask(parent, mail["task"]["id"])
        note = prompts.for_piece(mail["from"], chat_id, parent) if parent else prompts.for_silence()
        return _turn(mail, note, task=parent, **where)

    async def _early(self, mail: dict[str, Any]) -> list[dict[str, Any]]:
        """The earlier parts: those kept here, and those that another gateway of this agent has claimed."""
        head = parts.head_of(mail)
        if head is None or mail["task"].get("state") not in ENDED:
            return []
        early = self.parts.take(mail)
        if len(early) + 1 < head[1]:
            known = {part["id"] for part in early}
            for held in await self._box.claimed():
                if held["id"] not in known and parts.is_early(held) and _same_task(held, mail):
                    early.append(held)
        return early

    async def _task(self, mail: dict[str, Any], task: dict[str, Any]) -> Turn | None:
        is_repeated = False
        if self._config.accept_tasks:
            try:
                await self._box.set_task_state(task["id"], "accepted")
            except ConflictError as error:
                if error.code == "conflict":
                    # The office has rejected it and sent its owner the reason.
                    return None
                is_repeated = True
        if is_repeated or not self._config.accept_tasks:
            state = (await self._box.task(task["id"]))["state"]
            if state in ENDED:
                return None
            is_repeated = state in PROGRESS
        note = prompts.for_task(mail["from"], task["id"], is_accepted=self._config.accept_tasks, is_repeated=is_repeated)
        return _turn(mail, note, task=task["id"], is_fresh=self._config.accept_tasks and not is_repeated)

    async def _reject(self, task: str, sender: str) -> None:
        try:
            reason = f"unauthorized: {quoted(self._box.name)} does not take tasks from {quoted(sender)}"
            await self._box.set_task_state(task, "rejected", reason)
        except ConflictError:
            # The office has ended it and notified its owner.
            pass


def _same_task(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one["from"] == other["from"] and one["task"]["id"] == other["task"]["id"]


def _turn(mail: dict[str, Any], note: str, **more: Any) -> Turn:
    """A turn in the conversation with the sender, unless `more` names another."""
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
    return Turn(mail=mail, content=f"{Mailbox.render(mail)}{note}", metadata=metadata, **{**where, **more})
