"""What the model is told beside a mail. The mail itself stands in the frame that the core renders."""

from __future__ import annotations

NO_ANSWER = "[mailbox: no answer]"
"""An answer that is this line alone is not sent. The bridges use the same line."""


def for_message(sender: str) -> str:
    return (
        f"Your answer to this is sent back to {sender} by itself; do not send it with a tool as well. "
        f"To send nothing, answer with this line alone: {NO_ANSWER}"
    )


def for_silence() -> str:
    return "This needs no answer, and none is sent back."


def for_task(sender: str, task: str, *, is_accepted: bool, is_repeated: bool) -> str:
    begun = "You had begun this before a restart: look what is done already. " if is_repeated else ""
    if is_accepted:
        return (
            f"{begun}You have accepted this task; your answer completes it and is sent to {sender} by itself. If you cannot do it, "
            f"call mailbox_task with id {task}, state failed and the reason. If you move the task with mailbox_task yourself, "
            f"what you answer afterwards is not sent."
        )
    return (
        f"{begun}This task is not accepted yet: you decide. Your answer accepts and completes it and is sent to {sender} by itself. "
        f"Not yours to do? Call mailbox_task with id {task}, state rejected and the reason; what you answer afterwards is not sent."
    )


def for_update(sender: str) -> str:
    return (
        f"This is what {sender} says to what you asked of it in this conversation. Your answer goes to this chat, not to {sender}: "
        f"say what matters to whoever you talk with here."
    )


def for_piece(sender: str, owner: str, task: str) -> str:
    return (
        f"This is what {sender} says to what you asked of it for {owner}'s task {task}. Your answer completes that task and is sent "
        f"to {owner} by itself. If it cannot be done, call mailbox_task with id {task}, state failed and the reason."
    )


def failed(me: str) -> str:
    """What a peer is told of a turn that failed: the cause may be nobody else's business."""
    return f"{me} could not work on this: its agent failed. The reason is in {me}'s own log."


def pieces(text: str, limit: int = 10_000) -> list[str]:
    """A long answer as texts of at most `limit` characters, each with a line that counts them."""
    if len(text) <= limit:
        return [text]
    room = limit - 40
    bodies = [text[at : at + room] for at in range(0, len(text), room)]
    return [f"[part {at} of {len(bodies)}]\n{body}" for at, body in enumerate(bodies, 1)]


def subject_of(text: str) -> str:
    """A subject for a thread that was given none: the beginning of its first line."""
    line = text.strip().partition("\n")[0].strip()
    return line if len(line) <= 60 else f"{line[:59].rstrip()}…"
