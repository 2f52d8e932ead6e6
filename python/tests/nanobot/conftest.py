"""The channel on nanobot's own bus, with a loop that gives each message a turn and tells of it as nanobot does."""

from __future__ import annotations

import asyncio
import inspect
import pathlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("nanobot.bus.queue")

from agent_mailbox import Mailbox
from agent_mailbox.nanobot.channel import MailboxChannel
from nanobot.agent.tools.context import RequestContext, request_context
from nanobot.agent.tools.message import MessageTool
from nanobot.bus import runtime_events
from nanobot.bus.events import OutboundMessage
from nanobot.bus.queue import MessageBus

PATIENCE = 30.0


class Gateway:
    """One gateway: its channel, and what its model says to each message (None: nothing; ``file:PATH``: that file)."""

    def __init__(self, root: pathlib.Path, agent: str, says: Callable[[Any], Any], **section: Any) -> None:
        self.bus = MessageBus()
        # nanobot makes its tools before its channels, and this one keeps the bus's method from then on.
        self.message_tool = MessageTool(send_callback=self.bus.publish_outbound, workspace=root)
        self.says = says
        self.turns: list[Any] = []
        self.outbound: list[OutboundMessage] = []
        self.channel = MailboxChannel({"agentId": agent, "mailboxesRoot": str(root), "pollInterval": 0.2, **section}, self.bus)

    async def __aenter__(self) -> Gateway:
        self._tasks = [asyncio.create_task(work) for work in (self.channel.start(), self._loop(), self._dispatch())]
        await until(lambda: self.channel.is_running)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.channel.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _loop(self) -> None:
        events = runtime_events.RuntimeEventPublisher(self.bus)
        while True:
            msg = await self.bus.consume_inbound()
            self.turns.append(msg)
            await events.session_turn_started(msg, msg.session_key)
            where = {"channel": msg.channel, "chat_id": msg.chat_id, "session_key": msg.session_key}
            with request_context(RequestContext(**where, metadata=dict(msg.metadata), sender_id=msg.sender_id)):
                said = self.says(msg)
                said = await said if inspect.isawaitable(said) else said
            if said is not None:
                media = [said.removeprefix("file:")] if said.startswith("file:") else []
                reply = OutboundMessage(**_chat(msg), content="" if media else said, media=media, metadata=dict(msg.metadata))
                await self.bus.publish_outbound(reply)
            await events.turn_completed(**where, metadata=msg.metadata)
            await events.run_status_changed(msg, msg.session_key, "idle")

    async def _dispatch(self) -> None:
        while True:
            msg = await self.bus.consume_outbound()
            if msg.channel == "mailbox":
                await self.channel.send(msg)
            else:
                self.outbound.append(msg)


def _chat(msg: Any) -> dict[str, str]:
    return {"channel": msg.channel, "chat_id": msg.chat_id}


async def until(check: Callable[[], Any]) -> Any:
    """Waits for what must come."""
    async with asyncio.timeout(PATIENCE):
        while not (found := check()):
            await asyncio.sleep(0.01)
        return found


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "mailboxes"


@pytest.fixture
def ann(root: pathlib.Path) -> Iterator[Mailbox]:
    """A peer."""
    mailbox = Mailbox.directory(root, "ann")
    mailbox.register()
    yield mailbox
    mailbox.close()


@pytest.fixture
def gateway(root: pathlib.Path) -> Callable[..., Gateway]:
    def make(says: Callable[[Any], Any] = lambda _msg: "fine", **section: Any) -> Gateway:
        return Gateway(root, section.pop("agent", "bot"), says, **section)

    return make


@pytest.fixture
def run() -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs a test's coroutine."""
    return lambda body: asyncio.run(asyncio.wait_for(body(), 2 * PATIENCE))
