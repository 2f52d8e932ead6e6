"""Runs one turn at a time in each conversation.

nanobot would merge a message that arrives during a turn into that turn, and its answer would go to another sender.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

_LONGEST_WAIT = 600.0
"""Seconds after which a message is passed on although the conversation is busy: nanobot then merges it into the running turn."""


class Conversations:
    """Sessions with a running turn, and the queues for them."""

    def __init__(self) -> None:
        self._busy: dict[str, asyncio.Event] = {}
        self._queues: dict[str, tuple[asyncio.Lock, int]] = {}

    def started(self, session: str) -> None:
        """Marks the session as busy with a turn, whether or not it is one of ours."""
        self._busy.setdefault(session, asyncio.Event())

    def idle(self, session: str) -> None:
        """Marks the session as idle."""
        ended = self._busy.pop(session, None)
        if ended is not None:
            ended.set()

    @contextlib.asynccontextmanager
    async def turn(self, session: str) -> AsyncIterator[None]:
        """Waits in order of arrival until the session is idle, and holds back our other turns meanwhile."""
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
