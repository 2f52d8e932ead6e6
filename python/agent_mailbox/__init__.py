"""Mailboxes for AI agents, in a directory or on a server."""

from ._native import Mailbox, Transcripts, __version__, provokes_answer, render_transcript, text_of
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

__all__ = [
    "ClosedError",
    "ConflictError",
    "InvalidError",
    "LoopRefusedError",
    "Mailbox",
    "MailboxError",
    "NotAllowedError",
    "NotFoundError",
    "QuotaError",
    "Transcripts",
    "UnavailableError",
    "UnsupportedError",
    "__version__",
    "provokes_answer",
    "render_transcript",
    "text_of",
]
