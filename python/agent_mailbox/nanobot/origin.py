"""The origin of a message that the model sends: the mail that its turn handles, and the conversation in which it is sent.

A message from a turn for a mail answers that mail or passes it on, so ttl and trace continue. A message from a chat carries that chat
as its callback, so that the answer comes back there.
"""

from __future__ import annotations

from typing import Any

from agent_mailbox.nanobot.runtime import route_metadata
from agent_mailbox.nanobot.turn import CHANNEL, Turn

_NOT_A_CHAT = ("", "cli", "system")
"""Channels to which no later answer can be sent."""


def fields(context: Any, turn: Turn | None, to: str, kind: str) -> dict[str, Any]:
    """The fields of a draft that follow from the request in which it is created."""
    found: dict[str, Any] = {}
    if turn is not None:
        found["parent"] = turn.id
        # An answer to the sender continues the hops of its message, so that two agents do not answer each other forever.
        if to.strip().casefold() == turn.mail["from"].casefold():
            found["automatic"] = True
    callback = _callback(context, turn, kind)
    if callback is not None:
        found["callback"] = callback
    return found


def _callback(context: Any, turn: Turn | None, kind: str) -> dict[str, Any] | None:
    """The callback to the conversation of the request."""
    if context is None or context.channel in _NOT_A_CHAT or not context.chat_id:
        return None
    callback: dict[str, Any] = {"channel": context.channel, "chat_id": context.chat_id}
    if context.session_key:
        callback["session_id"] = context.session_key
    if context.channel == CHANNEL:
        if turn is None or turn.task is None or kind != "task":
            # A turn without a task ends with its answer, and one with a task waits only for subtasks.
            return None
        callback["task"] = turn.task
    else:
        route = route_metadata(context.channel, context.metadata or {})
        if route:
            callback["route"] = route
    return callback
