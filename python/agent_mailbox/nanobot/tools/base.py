"""What the tools have in common."""

from __future__ import annotations

from typing import Any

from nanobot.agent.tools.base import Tool
from nanobot.agent.tools.context import current_request_context

from agent_mailbox import AsyncMailbox, MailboxError
from agent_mailbox.nanobot.channel import MailboxChannel
from agent_mailbox.nanobot.config import from_nanobot, open_mailbox
from agent_mailbox.nanobot.runtime import gateway_of
from agent_mailbox.nanobot.turn import Turn


class MailboxTool(Tool):
    """A tool on the mailbox of the channel in this process, or on one of its own."""

    _plugin_discoverable = False

    def __init__(self, bus: Any = None) -> None:
        self._bus = bus
        self._own: AsyncMailbox | None = None

    @classmethod
    def enabled(cls, ctx: Any) -> bool:
        config = from_nanobot()
        return config is not None and config.enabled

    @classmethod
    def create(cls, ctx: Any) -> Tool:
        if ctx.bus is not None and getattr(ctx, "runtime_events", None) is not None:
            gateway_of(ctx.bus).events = ctx.runtime_events
        return cls(ctx.bus)

    @property
    def channel(self) -> MailboxChannel | None:
        return None if self._bus is None else gateway_of(self._bus).channel

    async def mailbox(self) -> AsyncMailbox:
        channel = self.channel
        if channel is not None and channel.box is not None:
            return channel.box
        if self._own is None:
            config = from_nanobot()
            if config is None:
                raise ValueError("there is no section channels.mailbox in nanobot's configuration")
            self._own = await open_mailbox(config)
        return self._own

    def turn(self) -> Turn | None:
        """The turn in which this tool is called, if it is one of a mail."""
        context = current_request_context()
        channel = self.channel
        if context is None or channel is None:
            return None
        return channel.turn((context.metadata or {}).get("mailbox_id"))

    async def execute(self, **kwargs: Any) -> Any:
        try:
            return await self._execute(**kwargs)
        except (MailboxError, ValueError) as error:
            hint = getattr(error, "hint", None)
            return f"Error: {error}" + (f" ({hint})" if hint else "")

    async def _execute(self, **kwargs: Any) -> str:
        raise NotImplementedError
