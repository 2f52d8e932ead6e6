"""A mailbox for programs that run on asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, TypeVar

from ._native import Mailbox
from .errors import ClosedError, MailboxError

__all__ = ["AsyncMailbox"]

T = TypeVar("T")

#: Maximum number of concurrent calls; waits for mail have threads of their own.
VERB_THREADS = 8
#: Maximum number of concurrent waits for mail.
WAIT_THREADS = 4


class AsyncMailbox:
    """The verbs of :class:`Mailbox` as coroutines.

    They run on threads of this object, so that a wait for mail does not occupy asyncio's own. A cancelled ``next`` ends its
    wait, and a message that it had just claimed is released.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self._verbs = ThreadPoolExecutor(VERB_THREADS, thread_name_prefix="mailbox-verb")
        self._waits = ThreadPoolExecutor(WAIT_THREADS, thread_name_prefix="mailbox-wait")
        self._woken = 0

    @classmethod
    async def directory(
        cls,
        root: str | os.PathLike[str],
        agent: str,
        *,
        layout: Literal["nanobot", "chipset"] | None = "nanobot",
        poll_interval: float = 5.0,
        transcripts: str | os.PathLike[str] | None = None,
        create_recipients: bool = False,
    ) -> AsyncMailbox:
        """See :meth:`Mailbox.directory`."""
        opened = functools.partial(
            Mailbox.directory,
            root,
            agent,
            layout=layout,
            poll_interval=poll_interval,
            transcripts=transcripts,
            create_recipients=create_recipients,
        )
        return cls(await asyncio.to_thread(opened))

    @classmethod
    async def server(cls, url: str, api_key: str) -> AsyncMailbox:
        """See :meth:`Mailbox.server`."""
        return cls(await asyncio.to_thread(Mailbox.server, url, api_key))

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.mailbox.name

    @property
    def where(self) -> str:
        """Type and location of the office, for people."""
        return self.mailbox.where

    @property
    def closed(self) -> bool:
        return self.mailbox.closed

    async def _run(self, verb: Callable[..., T], *args: Any, **options: Any) -> T:
        if self.mailbox.closed:
            raise ClosedError("this mailbox was closed; open it again", code="closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._verbs, functools.partial(verb, *args, **options))

    async def close(self) -> None:
        """See :meth:`Mailbox.close`. Running calls are completed."""
        await asyncio.to_thread(self.mailbox.close)
        self._verbs.shutdown(wait=False)
        self._waits.shutdown(wait=False)

    async def __aenter__(self) -> AsyncMailbox:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.close()

    def wake(self) -> None:
        """Makes every ``next`` that waits return None."""
        self._woken += 1
        self.mailbox.wake()

    async def next(
        self, timeout: float | None = None, *, urgent_first: bool = False, lease: float = 300.0
    ) -> dict[str, Any] | None:
        """See :meth:`Mailbox.next`."""
        give_up = None if timeout is None else time.monotonic() + timeout
        woken = self._woken
        while True:
            left = None if give_up is None else max(0.0, give_up - time.monotonic())
            message = await self._wait(left, urgent_first=urgent_first, lease=lease)
            if message is not None or self.mailbox.closed or woken != self._woken:
                return message
            # No message before the timeout: another ``next`` was cancelled, which wakes all waits.
            if give_up is not None and time.monotonic() >= give_up:
                return None

    async def _wait(self, timeout: float | None, **options: Any) -> dict[str, Any] | None:
        if self.mailbox.closed:
            raise ClosedError("this mailbox was closed; open it again", code="closed")
        waiting = self._waits.submit(self.mailbox.next, timeout, **options)
        try:
            return await asyncio.shield(asyncio.wrap_future(waiting))
        except asyncio.CancelledError:
            waiting.add_done_callback(self._release_result)
            if not waiting.cancel() and not waiting.done():
                self.mailbox.wake()
            raise

    def _release_result(self, waited: Future[dict[str, Any] | None]) -> None:
        if waited.cancelled() or waited.exception() is not None:
            return
        message = waited.result()
        if message is not None:
            # A message that cannot be released now is released when its claim ends.
            with contextlib.suppress(MailboxError):
                self.mailbox.release(message["id"])

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Messages as they arrive, until the mailbox is closed. Each is claimed: acknowledge or release it."""
        while not self.mailbox.closed:
            message = await self.next()
            if message is not None:
                yield message

    async def register(self, card: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return await self._run(self.mailbox.register, card)

    async def heartbeat(self) -> None:
        await self._run(self.mailbox.heartbeat)

    async def set_status(
        self, status: Literal["idle", "busy", "offline"], current_tasks: Sequence[str] | None = None
    ) -> None:
        await self._run(self.mailbox.set_status, status, current_tasks)

    async def agents(self) -> list[dict[str, Any]]:
        return await self._run(self.mailbox.agents)

    async def agent(self, name: str) -> dict[str, Any] | None:
        return await self._run(self.mailbox.agent, name)

    async def connect(self, target: str, intro: str | None = None) -> dict[str, Any]:
        return await self._run(self.mailbox.connect, target, intro)

    async def approve(self, code: str) -> dict[str, Any]:
        return await self._run(self.mailbox.approve, code)

    async def connections(self) -> list[dict[str, Any]]:
        return await self._run(self.mailbox.connections)

    async def send(self, draft: Mapping[str, Any]) -> dict[str, Any]:
        return await self._run(self.mailbox.send, draft)

    async def ack(self, *ids: str) -> int:
        return await self._run(self.mailbox.ack, *ids)

    async def release(self, *ids: str) -> None:
        await self._run(self.mailbox.release, *ids)

    async def renew(self, *ids: str, lease: float = 300.0) -> None:
        await self._run(self.mailbox.renew, *ids, lease=lease)

    async def claimed(self) -> list[dict[str, Any]]:
        return await self._run(self.mailbox.claimed)

    async def inbox(self, unread_only: bool = False) -> dict[str, Any]:
        return await self._run(self.mailbox.inbox, unread_only)

    async def read(self, session: str, limit: int = 20, before: str | None = None) -> dict[str, Any]:
        return await self._run(self.mailbox.read, session, limit, before)

    async def message(self, id: str) -> dict[str, Any]:
        return await self._run(self.mailbox.message, id)

    async def search(self, text: str, limit: int | None = None) -> list[dict[str, Any]]:
        return await self._run(self.mailbox.search, text, limit)

    async def task(self, id: str) -> dict[str, Any]:
        return await self._run(self.mailbox.task, id)

    async def tasks(
        self, *, owned: bool | None = None, state: str | None = None, open: bool = False
    ) -> list[dict[str, Any]]:
        return await self._run(self.mailbox.tasks, owned=owned, state=state, open=open)

    async def set_task_state(self, id: str, state: str, note: str | None = None) -> dict[str, Any]:
        return await self._run(self.mailbox.set_task_state, id, state, note)

    async def transcript_append(self, key: str, line: Mapping[str, Any]) -> None:
        await self._run(self.mailbox.transcript_append, key, line)

    async def transcript_recent(self, key: str, limit: int = 20) -> list[dict[str, Any]]:
        return await self._run(self.mailbox.transcript_recent, key, limit)

    @staticmethod
    def render(message: Mapping[str, Any]) -> str:
        """See :meth:`Mailbox.render`."""
        return Mailbox.render(message)
