"""The instructions to the model about a message, which itself is in the frame that the core renders."""

from __future__ import annotations

from agent_mailbox import quoted

NO_ANSWER = "[mailbox: no answer]"
"""An answer that consists of this line is not sent. The bridges use the same line."""


def for_message(sender: str) -> str:
    return (
        f"Your answer to this is sent back to {quoted(sender)} by itself; do not send it with a tool as well. "
        f"To send nothing, answer with this line alone: {NO_ANSWER}"
    )


def for_silence() -> str:
    return "This needs no answer, and none is sent back."


def for_task(sender: str, task: str, *, is_accepted: bool, is_repeated: bool) -> str:
    begun = "You had begun this before a restart: look what is done already. " if is_repeated else ""
    owner = quoted(sender)
    if is_accepted:
        return (
            f"{begun}You have accepted this task; your answer completes it and is sent to {owner} by itself. If you cannot do it, "
            f"call mailbox_task with id {task}, state failed and the reason. If you move the task with mailbox_task yourself, "
            f"what you answer afterwards is not sent."
        )
    return (
        f"{begun}This task is not accepted yet: you decide. Your answer accepts and completes it and is sent to {owner} by itself. "
        f"Not yours to do? Call mailbox_task with id {task}, state rejected and the reason; what you answer afterwards is not sent."
    )


def for_update(sender: str) -> str:
    peer = quoted(sender)
    return (
        f"This is what {peer} says to what you asked of it in this conversation. Your answer goes to this chat, not to {peer}: "
        f"say what matters to whoever you talk with here."
    )


def for_piece(sender: str, owner: str, task: str) -> str:
    return (
        f"This is what {quoted(sender)} says to what you asked of it for {quoted(owner)}'s task {task}. Your answer completes that "
        f"task and is sent to {quoted(owner)} by itself. If it cannot be done, call mailbox_task with id {task}, state failed and the "
        f"reason."
    )


def failed(me: str) -> str:
    """The answer to a peer for a turn that failed; the cause may be private."""
    return f"{quoted(me)} could not work on this: its agent failed. The reason is in its own log."


def subject_of(text: str) -> str:
    """A subject for a message without one: the beginning of its first line."""
    line = text.strip().partition("\n")[0].strip()
    return line if len(line) <= 60 else f"{line[:59].rstrip()}…"
