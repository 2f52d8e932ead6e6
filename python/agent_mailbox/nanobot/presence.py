"""Heartbeats, the agent's status, and renewal of its claims."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from loguru import logger

from agent_mailbox import AsyncMailbox, ClosedError, MailboxError

LEASE = 120.0
"""Seconds of a claim on a server. Renewed while the message is handled; the mail of a gateway that died is released after them."""
_RENEWALS = 4
"""Renewals within one lease, so that some may fail."""
_SETTLED = 0.1
"""Seconds by which a change of status is debounced."""


class Presence:
    """Reports ``busy`` during turns, else ``idle``, with heartbeats in between."""

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
                # A shorter turn is not worth two more writes.
                await asyncio.sleep(_SETTLED)

    async def _renew(self) -> None:
        held = self._held()
        if held:
            await self._box.renew(*held, lease=LEASE)
