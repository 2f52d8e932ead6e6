"""nanobot's own tool ``message``, which can address peers too but does not pass on the turn in which it was called.

Every message goes through the bus's outbound queue, where the tool puts it. So a message to a peer is sent from there: with the ttl
and trace of the mail that the turn answers, and so that a refusal is the tool's result.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from nanobot.agent.tools.context import current_request_context

from agent_mailbox.nanobot.runtime import ERROR_REPLY, is_status
from agent_mailbox.nanobot.turn import CHANNEL

if TYPE_CHECKING:
    from agent_mailbox.nanobot.channel import MailboxChannel


def hook(bus: Any, channel: MailboxChannel) -> Callable[[], None]:
    """Sends messages of a turn to a peer at once. Returns a function that removes the hook."""
    queue, put = bus.outbound, bus.outbound.put

    async def put_or_send(msg: Any) -> None:
        send = _sender(channel, msg)
        await (send(msg) if send is not None else put(msg))

    queue.put = put_or_send

    def undo() -> None:
        if queue.__dict__.get("put") is put_or_send:
            del queue.put

    return undo


def _sender(channel: MailboxChannel, msg: Any) -> Callable[[Any], Awaitable[None]] | None:
    """The function that sends this message; None if it goes to the queue."""
    context = current_request_context()
    if msg.channel != CHANNEL or context is None or is_status(msg) or msg.content == ERROR_REPLY:
        return None
    metadata = msg.metadata or {}
    if "mailbox_id" in metadata:
        return None
    turn = channel.turn((context.metadata or {}).get("mailbox_id"))
    if turn is not None and turn.is_ours and msg.chat_id == turn.chat_id:
        # To the sender of the mail: a part of the answer.
        msg.metadata = {**metadata, "mailbox_id": turn.id}
        return None
    return functools.partial(channel.send_from, context=context, turn=turn)
