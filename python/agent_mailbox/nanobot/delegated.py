"""What this process knows about the tasks that it gave to others."""

from __future__ import annotations

import asyncio
from typing import Any

_MAX_TASKS = 1_000


class Delegated:
    """Tasks given from turns of this process, until the model has seen what became of them."""

    def __init__(self) -> None:
        self.sending = asyncio.Lock()
        """Held from before a task is sent until its outcome is noted; an answer may come sooner than that."""
        self._told: dict[str, None] = {}
        self._awaited: dict[str, set[str]] = {}

    def note_told(self, task: str) -> None:
        """The model was told in its own turn that the office rejected this task."""
        self._told[task] = None
        _bound(self._told)

    def take_told(self, task: str) -> bool:
        """Whether the model was told; asked once."""
        return self._told.pop(task, self) is None

    def note_awaited(self, task: str, piece: str) -> None:
        """For a task of ours, one was given to another agent."""
        self._awaited.setdefault(task, set()).add(piece)
        _bound(self._awaited)

    def note_seen(self, task: str, piece: str) -> None:
        """The model is shown the end of that one."""
        self._awaited.get(task, set()).discard(piece)

    def is_awaited(self, task: str) -> bool:
        """Whether there are such whose end the model has not seen yet."""
        if self._awaited.get(task):
            return True
        self._awaited.pop(task, None)
        return False


def _bound(memory: dict[str, Any]) -> None:
    while len(memory) > _MAX_TASKS:
        memory.pop(next(iter(memory)))
