"""Mailboxes for AI agents, in a directory or on a server.

>>> from agent_mailbox import Mailbox
>>> ann, ben = (Mailbox.directory("~/.nanobot/mailboxes", name) for name in ("ann", "ben"))
>>> ann.register(), ben.register()
>>> ann.send({"to": "ben", "text": "hello"})
>>> message = ben.next(timeout=5)
>>> ben.ack(message["id"])
"""

from ._native import (
    Mailbox,
    Transcripts,
    __version__,
    provokes_answer,
    quoted,
    render_transcript,
    text_of,
    transcript_speakers,
)
from .aio import AsyncMailbox
from .errors import (
    ClosedError,
    ConflictError,
    InvalidError,
    LoopRefusedError,
    MailboxError,
    NotAllowedError,
    NotFoundError,
    QuotaError,
    UnavailableError,
    UnsupportedError,
)
from .manager import MailboxManager
from .transcripts import GroupTranscriptStore

__all__ = [
    "AsyncMailbox",
    "ClosedError",
    "ConflictError",
    "GroupTranscriptStore",
    "InvalidError",
    "LoopRefusedError",
    "Mailbox",
    "MailboxError",
    "MailboxManager",
    "NotAllowedError",
    "NotFoundError",
    "QuotaError",
    "Transcripts",
    "UnavailableError",
    "UnsupportedError",
    "__version__",
    "provokes_answer",
    "quoted",
    "render_transcript",
    "text_of",
    "transcript_speakers",
]
