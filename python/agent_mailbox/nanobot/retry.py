"""Retries while the office is temporarily unavailable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from loguru import logger

from agent_mailbox import ClosedError, MailboxError

T = TypeVar("T")

_FIRST = 0.5
_LONGEST = 30.0
"""Seconds between attempts, unless the office names a delay."""


class Retry:
    """Repeats calls to the office until they succeed, fail permanently, or the channel stops."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    async def back_off(self, what: str, error: Exception, failures: int) -> None:
        """Waits before the next attempt, or until the channel stops."""
        wait = getattr(error, "retry_after", None) or min(_LONGEST, _FIRST * 2 ** min(failures, 10))
        logger.warning("{}: {}; retry in {} s", what, error, wait)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopped.wait(), wait)

    async def until_done(self, verb: Callable[[], Awaitable[T]], what: str) -> T | None:
        """Repeats a call on temporary errors. A permanent error is logged, and None returned."""
        failures = 0
        while True:
            try:
                return await verb()
            except ClosedError:
                raise
            except MailboxError as error:
                if not error.may_succeed_later:
                    logger.warning("{}: {}", what, error)
                    return None
                failures += 1
                await self.back_off(f"the office cannot be used for {what}", error, failures)
                if self.stopped.is_set():
                    raise

    async def until_open(self, opened: Callable[[], Awaitable[Any]], what: str) -> Any:
        """Repeats a call on temporary errors. A permanent error is raised; None if the channel stops before."""
        failures = 0
        while not self.stopped.is_set():
            try:
                return await opened()
            except MailboxError as error:
                if not error.may_succeed_later:
                    raise
                failures += 1
                await self.back_off(what, error, failures)
        return None
