"""The shared transcript of a group chat, written by every bot in it."""

from __future__ import annotations

import os
from typing import Any

from ._native import Transcripts

__all__ = ["DEFAULT_ROOT", "GroupTranscriptStore"]

#: Where nanobots keep their transcripts.
DEFAULT_ROOT = "~/.nanobot/transcripts"


class GroupTranscriptStore:
    """Transcripts in a directory, one JSONL file for each chat, that any number of processes read and write.

    ``session_key`` is ``{channel}:{chat_id}``, never the key of a topic within the chat.
    """

    def __init__(self, base_dir: str | os.PathLike[str] = DEFAULT_ROOT) -> None:
        self.transcripts = Transcripts(base_dir)

    def append(
        self,
        session_key: str,
        role: str,
        content: str,
        sender: str,
        message_id: str | None = None,
        timestamp_ms: float | None = None,
    ) -> None:
        """Appends a line, which is durable when this returns. Every process that received a message may append it: its
        ``message_id`` is stored once."""
        line = {"role": role, "content": content, "sender": sender, "message_id": message_id, "ts": timestamp_ms}
        self.transcripts.append(session_key, line)

    def get_recent(self, session_key: str, max_messages: int = 20) -> list[dict[str, Any]]:
        """The last messages, oldest first, each once, as ``{"role", "content", "sender"}``: the shape of nanobot's
        ``session.get_history()`` with the sender. Invalid lines are skipped."""
        lines = self.transcripts.recent(session_key, max_messages)
        return [{"role": line["role"], "content": line["content"], "sender": line["sender"]} for line in lines]
