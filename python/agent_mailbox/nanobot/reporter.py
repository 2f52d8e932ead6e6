"""Sends the answer of a turn: as the end of a task, as a reply, or not at all."""

from __future__ import annotations

from typing import Any

from agent_mailbox import AsyncMailbox, ConflictError, LoopRefusedError, provokes_answer
from agent_mailbox.nanobot import parts, prompts
from agent_mailbox.nanobot.delegated import Delegated
from agent_mailbox.nanobot.turn import Turn


class Reporter:
    """Sends the answers of turns to the office."""

    def __init__(self, box: AsyncMailbox, delegated: Delegated) -> None:
        self._box = box
        self._delegated = delegated

    async def start(self, turn: Turn) -> None:
        """Marks the task as working."""
        if turn.task is not None and turn.is_fresh:
            await self._move(turn.task, "working", None)

    async def finish(self, turn: Turn) -> None:
        """Sends the answer to the office."""
        if not turn.is_ours:
            return
        if turn.task is not None:
            if not turn.is_moved:
                await self._finish_task(turn, turn.task)
        elif turn.mail["kind"] != "task_update" and provokes_answer(turn.mail):
            if turn.is_failed:
                await self._reply(turn, prompts.failed(self._box.name), [])
            elif turn.answer() is not None or turn.files:
                await self._reply(turn, turn.answer() or "", turn.files)

    async def _finish_task(self, turn: Turn, task: str) -> None:
        text = turn.answer()
        if turn.is_failed:
            return await self._move(task, "failed", prompts.failed(self._box.name))
        if await self._is_waiting(task):
            return await self._move(task, "working", text[: parts.MAX_NOTE] if text else None)
        # An update carries only text: files are listed as the core renders them.
        named = [f"[file] {path}" for path in turn.files]
        result = "\n".join([text, *named] if text else named)
        if not result:
            return await self._move(task, "failed", f"{self._box.name} gave no answer.")
        *early, last = parts.split(result, parts.MAX_NOTE)
        for part in early:
            await self._move(task, "working", part)
        await self._move(task, "completed", last)

    async def _is_waiting(self, task: str) -> bool:
        """Whether other agents still work on subtasks of this task."""
        if self._delegated.has_subtasks(task):
            return True
        given = await self._box.tasks(owned=True, open=True)
        return any((one.get("callback") or {}).get("task") == task for one in given)

    async def _move(self, task: str, state: str, note: str | None) -> None:
        try:
            await self._box.set_task_state(task, state, note)
        except ConflictError:
            # It was moved before a restart, or the office has ended it and notified its owner.
            pass

    async def _reply(self, turn: Turn, text: str, files: list[str]) -> None:
        texts = parts.split(text, parts.MAX_TEXT)
        for at, part in enumerate(texts, 1):
            content: list[dict[str, Any]] = [{"type": "text", "text": part}] if part else []
            if at == len(texts):
                content += [{"type": "file", "path": path} for path in files]
            draft = {
                "to": turn.mail["from"],
                "parts": content,
                "reply_to": turn.id,
                "automatic": True,
                "idempotency_key": f"nanobot:{turn.id}" if at == 1 else f"nanobot:{turn.id}:{at}",
            }
            try:
                await self._box.send(draft)
            except LoopRefusedError:
                # Two agents that answer each other have reached the ttl.
                return
            except ConflictError:
                # A different answer was sent before a restart.
                return
