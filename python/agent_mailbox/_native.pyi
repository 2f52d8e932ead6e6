"""The native half of ``agent_mailbox``: one agent's mailbox in a directory or on a server.

Every method blocks its thread, releases the GIL while it works, and may be called from several threads at once.
Documents (messages, tasks, agents, ...) are dicts with the JSON of the HTTP contract, see docs/server.md.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

from .errors import ClosedError as ClosedError
from .errors import ConflictError as ConflictError
from .errors import InvalidError as InvalidError
from .errors import LoopRefusedError as LoopRefusedError
from .errors import MailboxError as MailboxError
from .errors import NotAllowedError as NotAllowedError
from .errors import NotFoundError as NotFoundError
from .errors import QuotaError as QuotaError
from .errors import UnavailableError as UnavailableError
from .errors import UnsupportedError as UnsupportedError

__version__: str

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
    "quoted",
    "render_transcript",
    "text_of",
    "transcript_speakers",
]

@final
class Mailbox:
    """One agent's mailbox, opened by :meth:`directory` or :meth:`server`; the methods are the same."""

    @staticmethod
    def directory(
        root: str | os.PathLike[str],
        agent: str,
        *,
        layout: Literal["nanobot", "chipset"] | None = "nanobot",
        poll_interval: float = 5.0,
        transcripts: str | os.PathLike[str] | None = None,
        create_recipients: bool = False,
    ) -> Mailbox:
        """The mailbox of ``agent`` in a directory, which need not exist yet. A leading ``~`` is expanded.

        ``poll_interval`` (seconds) is the interval of polls where the directory cannot be watched. An agent without a heartbeat
        for 3 intervals, at least 30 s, is offline.
        """

    @staticmethod
    def server(url: str, api_key: str) -> Mailbox:
        """The mailbox of this key's agent on a server, which names the agent."""

    @property
    def name(self) -> str:
        """The name of the agent."""

    @property
    def where(self) -> str:
        """Type and location of the office, for people: ``directory /home/ann/.nanobot/mailboxes (nanobot)``."""

    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Releases all claims and ends every wait: a waiting :meth:`next` returns None. Later calls raise ClosedError.

        Does not mark the agent as offline; ``set_status("offline")`` does. Closing twice is no error.
        """

    def wake(self) -> None:
        """Makes every :meth:`next` that waits now return None; if none waits, the following one."""

    def __enter__(self) -> Mailbox: ...
    def __exit__(self, *_raised: object) -> None: ...

    # Agents.
    def register(self, card: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Registers or replaces the card: description, capabilities, allow_from, max_concurrent_tasks. Other keys are ignored."""

    def heartbeat(self) -> None: ...
    def set_status(
        self, status: Literal["idle", "busy", "offline"], current_tasks: Sequence[str] | None = None
    ) -> None:
        """Sets the status; counts as a heartbeat too. A directory shows the tasks given here; a server knows them itself."""

    def agents(self) -> list[dict[str, Any]]:
        """All agents that the caller may see, by name: name, description, capabilities, status, current_tasks, ..."""

    def agent(self, name: str) -> dict[str, Any] | None: ...

    # Connections, on a server only.
    def connect(self, target: str, intro: str | None = None) -> dict[str, Any]: ...
    def approve(self, code: str) -> dict[str, Any]: ...
    def connections(self) -> list[dict[str, Any]]: ...

    # Messages.
    def send(self, draft: Mapping[str, Any]) -> dict[str, Any]:
        """Sends; when this returns, the message is durable.

        Keys of a draft: ``to``; ``text`` or ``parts``; ``kind`` (message, task or a label); ``subject``; ``session``;
        ``priority``; for a task ``deadline`` (an instant, or a duration from now such as ``"2h"``) or ``deadline_in``
        (seconds) and ``callback`` (channel, session_id, chat_id); ``reply_to`` (answers it), ``relay_of`` (passes it on) or
        ``parent`` (answers it if its sender is ``to``, else passes it on: ttl and trace continue); ``automatic`` (true: a
        program sends this by itself); ``correlation_id``; ``metadata``; ``idempotency_key``. Others raise InvalidError.
        In a directory a program that counts hops itself may give ``ttl`` and ``trace`` instead of a parent; they can only
        make the rules stricter.

        Returns message_id, session_id, subject, created_at and, for a task, task (id, state) and, if the office rejected it at
        once, reason.
        """

    def next(self, timeout: float | None = None, *, urgent_first: bool = False, lease: float = 300.0) -> dict[str, Any] | None:
        """Claims the oldest unread message that is not claimed, waiting up to ``timeout`` seconds (None: without limit) for one.

        The claim lasts until :meth:`ack` or :meth:`release`. In a directory it ends with this process, on a server after
        ``lease`` seconds. Returns None after the timeout, at :meth:`wake` and at :meth:`close`.
        """

    def ack(self, *ids: str) -> int:
        """Marks messages as handled. Returns how many were unread; acknowledging an id twice is no error."""

    def release(self, *ids: str) -> None:
        """Releases claimed messages, to be claimed again."""

    def renew(self, *ids: str, lease: float = 300.0) -> None:
        """Extends the claims to ``lease`` seconds from now. In a directory claims do not expire."""

    def claimed(self) -> list[dict[str, Any]]:
        """Messages that the agent's consumers, in any process, have claimed and not acknowledged."""

    def inbox(self, unread_only: bool = False) -> dict[str, Any]:
        """The agent's sessions with previews: the document of GET /inbox. Marks nothing as read."""

    def read(self, session: str, limit: int = 20, before: str | None = None) -> dict[str, Any]:
        """A page of a session, newest first; marks what it returns as read."""

    def message(self, id: str) -> dict[str, Any]:
        """One whole message that the agent sent or received, with its ``receipts``."""

    def search(self, text: str, limit: int | None = None) -> list[dict[str, Any]]: ...

    # Tasks.
    def task(self, id: str) -> dict[str, Any]:
        """One task that the agent gave or was given: id, owner, assignee, state, note, deadline, callback (owner only), ..."""

    def tasks(self, *, owned: bool | None = None, state: str | None = None, open: bool = False) -> list[dict[str, Any]]:
        """Tasks that the agent gave (``owned=True``) or was given (``owned=False``), newest first."""

    def set_task_state(self, id: str, state: str, note: str | None = None) -> dict[str, Any]:
        """Moves a task that was given to the agent and sends its owner a task update. Skipped states are passed through.

        The office decides again whether the task may be accepted. If not, it is rejected, its owner is notified, and this raises
        ConflictError with the reason.
        """

    # Transcripts of group chats.
    def transcript_append(self, key: str, line: Mapping[str, Any]) -> None:
        """Appends a line to the agent's transcript of ``key``; see :meth:`Transcripts.append`."""

    def transcript_recent(self, key: str, limit: int = 20) -> list[dict[str, Any]]: ...

    # For models.
    @staticmethod
    def render(message: Mapping[str, Any]) -> str:
        """A message of :meth:`next` inside a frame with a fresh nonce that its text cannot imitate."""

    # Files of a directory, for MailboxManager.
    def poll(self, limit: int = 64) -> list[dict[str, Any]]:
        """Directory only: claims new messages and returns all that this object has claimed, oldest first, with the fields of their
        files (``type``, ``content``, ``timestamp``, ...) and ``filename``."""

    def mark_processed(self, filename: str) -> bool:
        """Directory only: acknowledges the message in this file. False if it was not unread."""

@final
class Transcripts:
    """Transcripts of group chats in a directory of JSONL files that several processes write to."""

    def __new__(cls, root: str | os.PathLike[str]) -> Transcripts: ...
    @property
    def root(self) -> str: ...
    def append(self, key: str, line: Mapping[str, Any]) -> None:
        """Appends a line (role, content, sender and, if known, message_id and ts) to the transcript of ``key``
        (``channel:chat``); it is durable when this returns."""

    def recent(self, key: str, limit: int = 20) -> list[dict[str, Any]]:
        """The last lines, oldest first, each message id once: role, content, sender, ts and, if known, message_id."""

    def recent_or_feishu(
        self,
        key: str,
        limit: int = 20,
        *,
        app_id: str,
        app_secret: str,
        base_url: str = "https://open.feishu.cn",
    ) -> list[dict[str, Any]]:
        """Like :meth:`recent`; if nothing is recorded yet, the chat's history from Feishu."""

def render_transcript(lines: Sequence[Mapping[str, Any]], me: str) -> str | None:
    """Lines of :meth:`Transcripts.recent` for a model, fenced; only lines of ``me`` itself are shown as its own."""

def transcript_speakers(lines: Sequence[Mapping[str, Any]], me: str) -> list[str]:
    """The speaker of each line, as :func:`render_transcript` names them; "you (this agent)" only for lines of ``me`` itself."""

def quoted(name: str) -> str:
    """A name for use in a sentence: in quotes unless it is plain."""

def text_of(message: Mapping[str, Any]) -> str:
    """The text parts of a message, joined by newlines."""

def provokes_answer(message: Mapping[str, Any]) -> bool:
    """Whether an agent that answers automatically may answer this: not a task update, and not without hops left."""
