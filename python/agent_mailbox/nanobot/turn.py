"""The turn of one message."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from agent_mailbox.nanobot import prompts
from agent_mailbox.nanobot.runtime import is_empty_answer

CHANNEL = "mailbox"
PROGRESS = ("accepted", "working")
ENDED = ("completed", "failed", "rejected")


@dataclass
class Turn:
    """A message, the conversation of its turn, and the result."""

    mail: dict[str, Any]
    content: str
    channel: str
    chat_id: str
    session_key: str
    metadata: dict[str, Any]
    early: list[str] = field(default_factory=list)
    """Ids of the messages with the earlier parts of this one; acknowledged together with it."""
    task: str | None = None
    """The task that the turn's answer completes."""
    is_fresh: bool = False
    """Whether that task still has to be marked as working."""
    answers: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Paths that were sent along with the answers."""
    is_failed: bool = False
    is_moved: bool = False
    """Whether the model itself ended the task."""
    has_started: bool = False
    is_completed: bool = False
    """Whether it ended by itself; otherwise it was cancelled."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        return self.mail["id"]

    @property
    def is_ours(self) -> bool:
        """Whether the answer comes back to this channel."""
        return self.channel == CHANNEL

    def answer(self) -> str | None:
        """The model's answer; None if nothing is to be sent."""
        text = "\n\n".join(part for part in self.answers if not is_empty_answer(part)).strip()
        return None if not text or text == prompts.NO_ANSWER else text
