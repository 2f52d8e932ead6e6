"""The tool ``mailbox_task``: tasks that were given or taken."""

from __future__ import annotations

import json
from typing import Any

from agent_mailbox import quoted
from agent_mailbox.nanobot.tools.base import MailboxTool
from agent_mailbox.nanobot.turn import ENDED


class MailboxTask(MailboxTool):
    """Tasks that were given or taken."""

    _plugin_discoverable = True
    name = "mailbox_task"
    description = (
        "See tasks, or move one that was given to you. Without an id: your open tasks, given and taken. With an id: that task. "
        "With an id and a state: move it (accepted, working, completed, failed, rejected); whoever gave it is told, with your note."
    )
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The task's id."},
            "state": {"type": "string", "enum": ["accepted", "working", "completed", "failed", "rejected"]},
            "note": {"type": "string", "description": "The result, the progress, or why not."},
        },
    }

    async def _execute(self, id: str | None = None, state: str | None = None, note: str | None = None, **_: Any) -> str:
        box = await self.mailbox()
        if not id:
            tasks = await box.tasks(open=True)
            return "\n".join(map(_line, tasks)) if tasks else "No open tasks."
        if not state:
            return _line(await box.task(id))
        turn = self.turn()
        if state == "rejected" and (await box.task(id))["state"] in ("accepted", "working"):
            # An accepted task can only fail.
            state = "failed"
        task = await box.set_task_state(id, state, note)
        if turn is not None and turn.task == id:
            # Progress is not the result: the answer still completes the task.
            turn.is_moved = task["state"] in ENDED
        return f"The task is {task['state']}; {quoted(task['owner'])} is told."


def _line(task: dict[str, Any]) -> str:
    shown = ("id", "state", "owner", "assignee", "subject", "deadline", "overdue", "note")
    return json.dumps({key: task[key] for key in shown if task.get(key)}, ensure_ascii=False)
