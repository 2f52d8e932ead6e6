"""Tasks that this process gave to other agents."""

from __future__ import annotations

import asyncio
from typing import Any

_MAX_TASKS = 1_000


class Delegated:
    """Tasks given from turns of this process, until the model has seen their result."""

    def __init__(self) -> None:
        self.sending = asyncio.Lock()
        """Held from before a task is sent until its result is recorded here, since an answer may arrive earlier."""
        self._rejected: dict[str, None] = {}
        self._subtasks: dict[str, set[str]] = {}

    def add_rejected(self, task: str) -> None:
        """Records that the model saw in its own turn that the office rejected this task."""
        self._rejected[task] = None
        _bound(self._rejected)

    def take_rejected(self, task: str) -> bool:
        """Returns whether this task was recorded as rejected, and removes it."""
        return self._rejected.pop(task, self) is None

    def add_subtask(self, task: str, subtask: str) -> None:
        """Records that a part of a task of ours was given to another agent."""
        self._subtasks.setdefault(task, set()).add(subtask)
        _bound(self._subtasks)

    def remove_subtask(self, task: str, subtask: str) -> None:
        """Records that the model is shown the result of a subtask."""
        self._subtasks.get(task, set()).discard(subtask)

    def has_subtasks(self, task: str) -> bool:
        """Whether the task has subtasks whose result the model has not seen yet."""
        if self._subtasks.get(task):
            return True
        self._subtasks.pop(task, None)
        return False


def _bound(memory: dict[str, Any]) -> None:
    while len(memory) > _MAX_TASKS:
        memory.pop(next(iter(memory)))
