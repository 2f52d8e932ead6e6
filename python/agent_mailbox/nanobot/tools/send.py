"""The tool ``mailbox_send``: messages and tasks for other agents."""

from __future__ import annotations

from typing import Any

from nanobot.agent.tools.context import current_request_context

from agent_mailbox import quoted
from agent_mailbox.nanobot import origin, prompts
from agent_mailbox.nanobot.delegated import Delegated
from agent_mailbox.nanobot.tools.base import MailboxTool


class MailboxSend(MailboxTool):
    """Messages and tasks for other agents."""

    _plugin_discoverable = True
    name = "mailbox_send"
    description = (
        "Send another agent a message, or give it a task. A task is done by the other agent in its own time; its result comes back into "
        "this conversation by itself, so do not wait for it: tell your person whom you asked. "
        "An answer to mail that you were just shown needs no tool; just answer."
    )
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "The agent's name, as mailbox_agents shows it."},
            "content": {"type": "string", "description": "What to say, or what is to be done and how the result shall look."},
            "kind": {"type": "string", "enum": ["message", "task"], "description": "message, unless said."},
            "subject": {"type": "string", "description": "One line that names the thread."},
            "deadline": {"type": "string", "description": "Of a task: 90m, 2h, 3d from now, or 2026-12-01T12:00:00Z."},
        },
        "required": ["to", "content"],
    }

    async def _execute(
        self, to: str = "", content: str = "", kind: str = "message", subject: str | None = None, deadline: str | None = None, **_: Any
    ) -> str:
        box, turn, channel = await self.mailbox(), self.turn(), self.channel
        draft: dict[str, Any] = {"to": to, "text": content, "kind": kind, "subject": subject or prompts.subject_of(content)}
        if deadline:
            draft["deadline"] = deadline
        draft |= origin.fields(current_request_context(), turn, to, kind)
        callback = draft.get("callback") or {}
        delegated = channel.delegated if channel is not None else Delegated()
        async with delegated.sending:
            sent = await box.send(draft)
            task = sent.get("task")
            if task and task["state"] == "rejected":
                delegated.add_rejected(task["id"])
            elif task and callback.get("task"):
                delegated.add_subtask(callback["task"], task["id"])
        if not task:
            return f"Sent to {quoted(to)}. An answer comes back by itself."
        if task["state"] == "rejected":
            return f"Error: the task was rejected. {sent.get('reason', '')}".strip()
        back = "The result comes back into this conversation by itself." if callback else "mailbox_task shows how it goes."
        return f"{quoted(to)} has the task; its id is {task['id']}. {back}"
