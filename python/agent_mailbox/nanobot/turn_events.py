"""Follows nanobot's turns: whether conversations are busy, and when the turn of a message ends.

The end of a turn is nanobot's event "idle", which is sent with or without an answer. An empty message is then put into the outbound
queue behind the answers: when it arrives at the channel, all of them have.
"""

from __future__ import annotations

import asyncio
from typing import Any

from nanobot.bus.events import OutboundMessage

from agent_mailbox.nanobot.listener import Listener
from agent_mailbox.nanobot.turn import CHANNEL, Turn

END = "_mailbox_end"
"""Marks the empty message that follows a turn's answers."""
_MERGE_GRACE = 2.0
"""Seconds in which a message that was not merged into a running turn starts a turn of its own."""


class TurnEvents:
    """Handles nanobot's events for the mail of one gateway."""

    def __init__(self, bus: Any, listener: Listener) -> None:
        self._bus = bus
        self._listener = listener

    async def handle(self, event: Any) -> None:
        context, kind = event.context, type(event).__name__
        turn = self._listener.turns.get((context.metadata or {}).get("mailbox_id"))
        if kind == "SessionTurnStarted":
            self._listener.conversations.started(context.session_key)
            if turn is not None:
                turn.has_started = True
        elif kind == "TurnCompleted":
            if turn is not None:
                turn.is_completed = True
                turn.is_failed = getattr(event, "outcome", "completed") == "failed"
        elif event.status == "idle":
            self._listener.conversations.idle(context.session_key)
            if turn is not None:
                await self._end(turn)
            for other in self._listener.turns.values():
                if other.session_key == context.session_key and other is not turn and not other.has_started:
                    # It was merged into the turn that ended, unless it starts one of its own now.
                    asyncio.get_running_loop().call_later(_MERGE_GRACE, _end_merged, other)

    async def _end(self, turn: Turn) -> None:
        if not turn.is_ours:
            turn.ended.set()
            return
        end = OutboundMessage(channel=CHANNEL, chat_id=turn.chat_id, content="", metadata={"mailbox_id": turn.id, END: True})
        await self._bus.publish_outbound(end)


def _end_merged(turn: Turn) -> None:
    if not turn.has_started:
        turn.is_completed = True
        turn.ended.set()
