"""That the agent lives, what it does, and that it still works on the mail that it holds."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from loguru import logger

from agent_mailbox import AsyncMailbox, ClosedError, MailboxError

LEASE = 120.0
"""Seconds for which a server keeps a message from others. Renewed while it is worked on; the mail of a gateway that died comes back after them."""
_RENEWALS = 4
"""Renewals within one lease: some may fail."""
_SETTLED = 0.1
"""Seconds from the beginning or end of a turn until it is shown."""


class Presence:
    """Says ``busy`` while a message has its turn and ``idle`` while the channel listens, with heartbeats in between."""

    def __init__(self, box: AsyncMailbox, interval: float, is_busy: Callable[[], bool], held: Callable[[], list[str]]) -> None:
        self._box = box
        self._interval = interval
        self._is_busy = is_busy
        self._held = held
        self.changed = asyncio.Event()

    async def run(self) -> None:
        is_shown_busy, renewed = False, time.monotonic()
        while True:
            self.changed.clear()
            is_busy = self._is_busy()
            try:
                if is_busy != is_shown_busy:
                    await self._box.set_status("busy" if is_busy else "idle")
                    is_shown_busy = is_busy
                else:
                    await self._box.heartbeat()
                if time.monotonic() - renewed >= LEASE / _RENEWALS:
                    renewed = time.monotonic()
                    await self._renew()
            except ClosedError:
                return
            except MailboxError as error:
                logger.warning("heartbeat failed: {}", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), min(self._interval, LEASE / _RENEWALS))
                # A turn that is over by then is not worth two writes beside those of the turn itself.
                await asyncio.sleep(_SETTLED)

    async def _renew(self) -> None:
        held = self._held()
        if held:
            await self._box.renew(*held, lease=LEASE)
