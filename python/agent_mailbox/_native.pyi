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
    """One agent's mailbox. Made by :meth:`directory` or :meth:`server`; the verbs are the same."""

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

        ``poll_interval`` (seconds) bounds how late mail is found where watching does not work, and how long without a
        heartbeat means offline (3 intervals, at least 30 s).
        """

    @staticmethod
    def server(url: str, api_key: str) -> Mailbox:
        """The mailbox that this key opens on a server. Asks the server whose it is."""

    @property
    def name(self) -> str:
        """Whose mailbox this is."""

    @property
    def where(self) -> str:
        """What and where the office is, for people: ``directory /home/ann/.nanobot/mailboxes (nanobot)``."""

    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Gives all claims back and ends every wait: a waiting :meth:`next` returns None. Later calls raise ClosedError.

        Does not say goodbye; ``set_status("offline")`` does. Closing twice is no error.
        """

    def wake(self) -> None:
        """Makes every :meth:`next` that waits now return None; if none waits, the following one."""

    def __enter__(self) -> Mailbox: ...
    def __exit__(self, *_raised: object) -> None: ...

    # Who is here.
    def register(self, card: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Registers or replaces the card: description, capabilities, allow_from, max_concurrent_tasks. Other keys are ignored."""

    def heartbeat(self) -> None: ...
    def set_status(
        self, status: Literal["idle", "busy", "offline"], current_tasks: Sequence[str] | None = None
    ) -> None:
        """Says what the agent does; counts as a heartbeat too. A directory shows the tasks given here; a server counts its own."""

    def agents(self) -> list[dict[str, Any]]:
        """Everybody the caller may know of, by name: name, description, capabilities, status, current_tasks, ..."""

    def agent(self, name: str) -> dict[str, Any] | None: ...

    # Who may write to whom: on a server only.
    def connect(self, target: str, intro: str | None = None) -> dict[str, Any]: ...
    def approve(self, code: str) -> dict[str, Any]: ...
    def connections(self) -> list[dict[str, Any]]: ...

    # Mail.
    def send(self, draft: Mapping[str, Any]) -> dict[str, Any]:
        """Sends; when this returns, the message is durable.

        Keys of a draft: ``to``; ``text`` or ``parts``; ``kind`` (message, task or a label); ``subject``; ``session``;
        ``priority``; for a task ``deadline`` (a moment, or a span from now such as ``"2h"``) or ``deadline_in``
        (seconds) and ``callback`` (channel, session_id, chat_id); ``reply_to`` (answers it), ``relay_of`` (passes it on) or
        ``parent`` (answers it if its sender is ``to``, else passes it on: ttl and trace go on); ``automatic`` (true: a
        program sends this by itself); ``correlation_id``; ``metadata``; ``idempotency_key``. Others raise InvalidError.
        In a directory a program that counts hops itself may give ``ttl`` and ``trace`` instead of a parent; they can only
        make the rules stricter.

        Returns message_id, session_id, subject, created_at and, of a task, task (id, state) and, where the office rejected
        it at once, reason.
        """

    def next(self, timeout: float | None = None, *, urgent_first: bool = False, lease: float = 300.0) -> dict[str, Any] | None:
        """Claims the oldest unread message that nobody holds, waiting up to ``timeout`` seconds (None: for ever) for one.

        The claim is kept until :meth:`ack` or :meth:`release`. In a directory it comes back when this process dies; on a
        server ``lease`` seconds after it was claimed. Returns None when the time is up, at :meth:`wake` and at :meth:`close`.
        """

    def ack(self, *ids: str) -> int:
        """Marks messages as handled. Returns how many were not yet; an id acknowledged twice is no error."""

    def release(self, *ids: str) -> None:
        """Gives claimed messages back to be claimed again."""

    def renew(self, *ids: str, lease: float = 300.0) -> None:
        """Keeps claimed messages for ``lease`` seconds from now on. In a directory claims do not run out by themselves."""

    def claimed(self) -> list[dict[str, Any]]:
        """What this agent's consumers, in whatever process, hold now and have not acknowledged."""

    def inbox(self, unread_only: bool = False) -> dict[str, Any]:
        """The agent's sessions with previews: the document of GET /inbox. Marks nothing as read."""

    def read(self, session: str, limit: int = 20, before: str | None = None) -> dict[str, Any]:
        """A page of a session, newest first; marks what it returns as read."""

    def message(self, id: str) -> dict[str, Any]:
        """One message that the agent sent or received, whole, with its ``receipts``."""

    def search(self, text: str, limit: int | None = None) -> list[dict[str, Any]]: ...

    # Tasks.
    def task(self, id: str) -> dict[str, Any]:
        """One task that the agent gave or was given: id, owner, assignee, state, note, deadline, callback (owner only), ..."""

    def tasks(self, *, owned: bool | None = None, state: str | None = None, open: bool = False) -> list[dict[str, Any]]:
        """Tasks that the agent gave (``owned=True``) or was given (``owned=False``), newest first."""

    def set_task_state(self, id: str, state: str, note: str | None = None) -> dict[str, Any]:
        """Moves a task that was given to the agent and tells its owner by a task update. States between are passed through.

        Taking a task on is decided by the office once more: ConflictError with the reason where it refuses, and the owner
        was told.
        """

    # The records of group chats.
    def transcript_append(self, key: str, line: Mapping[str, Any]) -> None:
        """Appends a line to the agent's record of ``key``; see :meth:`Transcripts.append`."""

    def transcript_recent(self, key: str, limit: int = 20) -> list[dict[str, Any]]: ...

    # For models.
    @staticmethod
    def render(message: Mapping[str, Any]) -> str:
        """A message of :meth:`next` inside a frame with a fresh nonce that its text cannot imitate."""

    # The directory's files by their names, for MailboxManager.
    def poll(self, limit: int = 64) -> list[dict[str, Any]]:
        """Directory only: claims what is new and returns all that this object holds, oldest first, each as its file has it
        (``type``, ``content``, ``timestamp``, ...) with its ``filename``."""

    def mark_processed(self, filename: str) -> bool:
        """Directory only: acknowledges the message in this file. False if it was not unread any more."""

@final
class Transcripts:
    """Records of group chats in a directory of JSONL files that several processes write to."""

    def __new__(cls, root: str | os.PathLike[str]) -> Transcripts: ...
    @property
    def root(self) -> str: ...
    def append(self, key: str, line: Mapping[str, Any]) -> None:
        """Appends a line (role, content, sender and, where known, message_id and ts) to the record of ``key``
        (``channel:chat``); it is on the disk when this returns."""

    def recent(self, key: str, limit: int = 20) -> list[dict[str, Any]]:
        """The last lines, oldest first, each message id once: role, content, sender, ts and, where known, message_id."""

    def recent_or_feishu(
        self,
        key: str,
        limit: int = 20,
        *,
        app_id: str,
        app_secret: str,
        base_url: str = "https://open.feishu.cn",
    ) -> list[dict[str, Any]]:
        """The same; where nothing was written yet, the chat's history from Feishu."""

def render_transcript(lines: Sequence[Mapping[str, Any]], me: str) -> str | None:
    """Lines of :meth:`Transcripts.recent` for a model, fenced; only lines of ``me`` itself are shown as its own."""

def transcript_speakers(lines: Sequence[Mapping[str, Any]], me: str) -> list[str]:
    """Who said each line, as :func:`render_transcript` names them; "you (this agent)" only for lines of ``me`` itself."""

def quoted(name: str) -> str:
    """A name for a sentence: as it is where it is plain, else in quotes."""

def text_of(message: Mapping[str, Any]) -> str:
    """The text parts of a message, on lines of their own."""

def provokes_answer(message: Mapping[str, Any]) -> bool:
    """Whether an agent that answers automatically may answer this: not a task update, and nothing without hops left."""
