"""One turn at a time in a conversation: what comes while a turn runs would be mixed into it, and its answer sent to another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

_LONGEST_WAIT = 600.0
"""Seconds after which a message is handed over although the conversation is still busy: nanobot then takes it into that turn."""


class Conversations:
    """Which sessions have a turn now, and who waits for them."""

    def __init__(self) -> None:
        self._busy: dict[str, asyncio.Event] = {}
        self._queues: dict[str, tuple[asyncio.Lock, int]] = {}

    def started(self, session: str) -> None:
        """A turn has begun, of ours or of somebody else."""
        self._busy.setdefault(session, asyncio.Event())

    def idle(self, session: str) -> None:
        """The turn has ended."""
        ended = self._busy.pop(session, None)
        if ended is not None:
            ended.set()

    @contextlib.asynccontextmanager
    async def turn(self, session: str) -> AsyncIterator[None]:
        """Waits until the session has no turn, in the order of asking, and keeps the others of ours waiting."""
        lock, waiting = self._queues.get(session, (asyncio.Lock(), 0))
        self._queues[session] = lock, waiting + 1
        try:
            async with lock:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LONGEST_WAIT):
                        while (busy := self._busy.get(session)) is not None:
                            await busy.wait()
                yield
        finally:
            lock, waiting = self._queues[session]
            if waiting == 1:
                del self._queues[session]
            else:
                self._queues[session] = lock, waiting - 1
