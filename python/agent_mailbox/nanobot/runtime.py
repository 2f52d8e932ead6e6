"""What differs between the versions of nanobot: events of a turn, and which outbound messages are answers."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_mailbox.nanobot.channel import MailboxChannel

ERROR_REPLY = "Sorry, I encountered an error."
"""nanobot's answer for a turn that failed; before 0.3 it lacks the metadata of the message."""

# Before 0.3 a status is marked in the metadata instead of in `event`.
_STATUS_KEYS = (
    "_progress",
    "_tool_hint",
    "_retry_wait",
    "_reasoning",
    "_reasoning_delta",
    "_reasoning_end",
    "_file_edit_events",
    "_stream_delta",
    "_stream_end",
    "_turn_end",
    "_goal_status",
    "_goal_state_sync",
    "_session_updated",
    "_runtime_model_updated",
)


class Gateway:
    """State that the plugins of one process share, by the bus that nanobot passes to each of them."""

    def __init__(self) -> None:
        self.events: Any = None
        """The source of turn events before 0.3; later it is the bus."""
        self.channel: MailboxChannel | None = None


_GATEWAYS: weakref.WeakKeyDictionary[Any, Gateway] = weakref.WeakKeyDictionary()


def gateway_of(bus: Any) -> Gateway:
    """The shared state of this bus."""
    return _GATEWAYS.setdefault(bus, Gateway())


def subscribe(bus: Any, handler: Callable[[Any], Awaitable[None]]) -> list[Callable[[], None]]:
    """Subscribes `handler` to the start and end of turns. Returns functions that unsubscribe; none if there are no such events."""
    source = bus if hasattr(bus, "subscribe") else gateway_of(bus).events
    if source is None:
        return []
    from nanobot.bus import runtime_events as events

    return [source.subscribe(handler, kind) for kind in (events.SessionTurnStarted, events.TurnCompleted, events.TurnRunStatusChanged)]


def is_status(message: Any) -> bool:
    """Whether an outbound message only reports the progress of a turn."""
    if getattr(message, "event", None) is not None:
        return True
    metadata = message.metadata or {}
    return any(metadata.get(key) for key in _STATUS_KEYS)


def is_answer(message: Any) -> bool:
    """Whether an outbound message has the text of an answer, sent or streamed."""
    event = getattr(message, "event", None)
    if event is not None:
        return type(event).__name__ == "StreamedResponseEvent"
    return not is_status(message)


def is_empty_answer(text: str) -> bool:
    """Whether this is the text for a turn without an answer."""
    try:
        from nanobot.utils.runtime import EMPTY_FINAL_RESPONSE_MESSAGE
    except ImportError:
        return not text.strip()
    return not text.strip() or text == EMPTY_FINAL_RESPONSE_MESSAGE


def route_metadata(channel: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a request that locates the answer in its chat: thread and kind of chat, nothing about people."""
    try:
        from nanobot.channels.notification_routes import notification_metadata
    except ImportError:
        found: dict[str, Any] = {}
    else:
        found = notification_metadata(channel, metadata)
    for key in ("chat_type", "is_group"):
        if key in metadata:
            found[key] = metadata[key]
    return found
