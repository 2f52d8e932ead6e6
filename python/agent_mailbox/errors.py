"""The exceptions of a mailbox."""

from __future__ import annotations

__all__ = [
    "ClosedError",
    "ConflictError",
    "InvalidError",
    "LoopRefusedError",
    "MailboxError",
    "NotAllowedError",
    "NotFoundError",
    "QuotaError",
    "UnavailableError",
    "UnsupportedError",
]


class MailboxError(Exception):
    """An error of a mailbox. ``str(error)`` is one sentence that says what to do."""

    code: str
    """The stable code of the error: ``not_found``, ``loop_refused``, ``unavailable``, ..."""
    hint: str | None
    """Further advice, if any."""
    retry_after: float | None
    """Seconds after which to try again, if the office knows."""
    may_be_done: bool
    """Whether the call may have been executed although it failed."""
    may_succeed_later: bool
    """Whether the error is temporary: the same call may succeed later."""

    def __init__(
        self,
        detail: str,
        *,
        code: str = "internal",
        hint: str | None = None,
        retry_after: float | None = None,
        may_be_done: bool = False,
        may_succeed_later: bool = False,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.hint = hint
        self.retry_after = retry_after
        self.may_be_done = may_be_done
        self.may_succeed_later = may_succeed_later


class InvalidError(MailboxError, ValueError):
    """A field is missing, malformed or out of bounds (``invalid``, ``too_large``)."""


class NotFoundError(MailboxError, LookupError):
    """No such agent, session, message or task (``not_found``, ``gone``)."""


class NotAllowedError(MailboxError):
    """Not allowed (``unauthorized``, ``forbidden``, ``old_key``, ``not_connected``, ``not_allowed``)."""


class LoopRefusedError(MailboxError):
    """ttl or trace forbids this hop (``loop_refused``)."""


class ConflictError(MailboxError):
    """It exists already, has changed meanwhile, or the task cannot change to this state (``conflict``, ``illegal_move``)."""


class QuotaError(MailboxError):
    """More than is allowed (``over_quota``, ``too_many_requests``)."""


class UnsupportedError(MailboxError):
    """This office does not support it; the text says what to use instead (``unsupported``)."""


class UnavailableError(MailboxError):
    """The office cannot be reached or cannot write now; try again later (``unavailable``, ``internal``)."""


class ClosedError(MailboxError):
    """The mailbox was closed by this process (``closed``)."""
