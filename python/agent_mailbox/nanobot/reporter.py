"""What becomes of a turn's answer: the end of a task, a reply, or nothing."""

from __future__ import annotations

from typing import Any

from agent_mailbox import AsyncMailbox, ConflictError, LoopRefusedError, provokes_answer
from agent_mailbox.nanobot import parts, prompts
from agent_mailbox.nanobot.delegated import Delegated
from agent_mailbox.nanobot.turn import Turn


class Reporter:
    """Carries what a turn said to the office."""

    def __init__(self, box: AsyncMailbox, delegated: Delegated) -> None:
        self._box = box
        self._delegated = delegated

    async def start(self, turn: Turn) -> None:
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
        # An update has no parts of its own: files are named as the core shows them.
        named = [f"[file] {path}" for path in turn.files]
        result = "\n".join([text, *named] if text else named)
        if not result:
            return await self._move(task, "failed", f"{self._box.name} gave no answer.")
        *early, last = parts.split(result, parts.MAX_NOTE)
        for part in early:
            await self._move(task, "working", part)
        await self._move(task, "completed", last)

    async def _is_waiting(self, task: str) -> bool:
        """Whether others still work on pieces of this task."""
        if self._delegated.is_awaited(task):
            return True
        given = await self._box.tasks(owned=True, open=True)
        return any((one.get("callback") or {}).get("task") == task for one in given)

    async def _move(self, task: str, state: str, note: str | None) -> None:
        try:
            await self._box.set_task_state(task, state, note)
        except ConflictError:
            # It stands there already, before a restart, or the office has ended it; its owner was told.
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
                # Two agents that answer each other have reached their ttl: that is what it is for.
                return
            except ConflictError:
                # Answered before a restart, in other words.
                return
