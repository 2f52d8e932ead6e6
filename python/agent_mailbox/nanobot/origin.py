"""Where something that the model sends comes from: the mail that its turn answers, and the conversation that it was sent in.

What is sent from a turn that a message began answers that message or passes it on, so ttl and trace go on. What is sent from a chat
carries that chat, so that its answer comes back there.
"""

from __future__ import annotations

from typing import Any

from agent_mailbox.nanobot.runtime import route_metadata
from agent_mailbox.nanobot.turn import CHANNEL, Turn

_NOT_A_CHAT = ("", "cli", "system")
"""Channels to which no answer can come back later."""


def fields(context: Any, turn: Turn | None, to: str, kind: str) -> dict[str, Any]:
    """The fields of a draft that follow from the request in which it is made."""
    found: dict[str, Any] = {}
    if turn is not None:
        found["parent"] = turn.id
        # What goes back to whoever wrote counts on with the hops of that message, so that two agents do not keep each other busy.
        if to.strip().casefold() == turn.mail["from"].casefold():
            found["automatic"] = True
    callback = _callback(context, turn, kind)
    if callback is not None:
        found["callback"] = callback
    return found


def _callback(context: Any, turn: Turn | None, kind: str) -> dict[str, Any] | None:
    """The conversation of the request."""
    if context is None or context.channel in _NOT_A_CHAT or not context.chat_id:
        return None
    callback: dict[str, Any] = {"channel": context.channel, "chat_id": context.chat_id}
    if context.session_key:
        callback["session_id"] = context.session_key
    if context.channel == CHANNEL:
        if turn is None or turn.task is None or kind != "task":
            # A turn without a task ends with its answer, and one with a task waits for tasks alone.
            return None
        callback["task"] = turn.task
    else:
        route = route_metadata(context.channel, context.metadata or {})
        if route:
            callback["route"] = route
    return callback
