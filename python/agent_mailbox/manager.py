"""Mailboxes of several agents, with the methods of nanobot's ``MailboxManager``."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from ._native import Mailbox
from .errors import ClosedError, InvalidError, MailboxError, NotFoundError, UnsupportedError
from .files import card_of, draft_of, filed_of

__all__ = ["DEFAULT_ROOT", "MailboxManager"]

#: Where nanobots keep their mailboxes.
DEFAULT_ROOT = "~/.nanobot/mailboxes"
#: Maximum number of open mailboxes; the least recently used one is closed, and its claims are released.
MOST_OPEN = 256
#: Maximum number of messages of one ``poll``; the rest waits for the next.
MOST_POLLED = 64
#: Seconds of the claim on a message that was polled from a server.
LEASE = 300.0


class MailboxManager:
    """Registers agents, sends and polls in a directory of mailboxes, or for agents of a server (:meth:`server`).

    A polled message is claimed by this object: other processes that poll the same mailbox do not get it, and it is released
    if this process dies before ``mark_processed``. Every method may be called from several threads.
    """

    def __init__(self, mailboxes_root: str | os.PathLike[str] = DEFAULT_ROOT, *, poll_interval: float = 5.0) -> None:
        self._start(lambda agent_id: Mailbox.directory(mailboxes_root, agent_id, poll_interval=poll_interval))

    @classmethod
    def server(cls, url: str, api_keys: Mapping[str, str]) -> MailboxManager:
        """The same methods for agents of a server, each with its key."""
        keys = dict(api_keys)

        def opened(agent_id: str) -> Mailbox:
            if agent_id not in keys:
                raise NotFoundError(f"no key for {agent_id}; give one for each agent that acts", code="not_found")
            return Mailbox.server(url, keys[agent_id])

        manager = cls.__new__(cls)
        manager._start(opened)
        # Any agent can list the agents.
        manager._default_agent = next(iter(keys), manager._default_agent)
        return manager

    def _start(self, opened: Callable[[str], Mailbox]) -> None:
        self._opened = opened
        self._open: OrderedDict[str, Mailbox] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False
        self._default_agent = "manager"
        # On a server: what was polled and not yet marked, by agent and file name.
        self._polled: dict[str, OrderedDict[str, dict[str, Any]]] = {}

    def mailbox(self, agent_id: str) -> Mailbox:
        """The mailbox of one agent, opened at the first use."""
        with self._lock:
            if self._closed:
                raise ClosedError("this manager was closed", code="closed")
            mailbox = self._open.get(agent_id)
            if mailbox is not None:
                self._open.move_to_end(agent_id)
                return mailbox
            mailbox = self._open[agent_id] = self._opened(agent_id)
            oldest = self._open.popitem(last=False)[1] if len(self._open) > MOST_OPEN else None
        if oldest is not None:
            oldest.close()
        return mailbox

    def close(self) -> None:
        """Closes all mailboxes, and releases messages that were polled and not marked."""
        with self._lock:
            self._closed = True
            open_now = list(self._open.values())
            self._open.clear()
        for mailbox in open_now:
            mailbox.close()

    def __enter__(self) -> MailboxManager:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def register(self, agent_id: str, card: Mapping[str, Any]) -> None:
        """Registers the agent's card, or replaces it. Creates its mailbox."""
        mailbox = self.mailbox(agent_id)
        mailbox.register(card)
        status, tasks = card.get("status"), card.get("current_tasks")
        if status not in (None, "idle") or tasks:
            mailbox.set_status(status or "idle", tasks)

    def heartbeat(self, agent_id: str) -> None:
        """Sends a heartbeat. Restores an agent that is missing in the registry."""
        self.mailbox(agent_id).heartbeat()

    def update_status(self, agent_id: str, status: str, current_tasks: list[str] | None = None) -> None:
        """Sets the agent's status, ``idle``, ``busy`` or ``offline``, and its current tasks."""
        self.mailbox(agent_id).set_status(status, current_tasks)  # type: ignore[arg-type]

    def send(self, from_id: str, to_id: str, msg: Mapping[str, Any]) -> None:
        """Sends ``msg``: ``type``, ``content`` (a text, or ``parts``), and where wanted ``task`` (its ``deadline``),
        ``callback``, ``reply_to``, ``metadata``, ``subject``, ``ttl`` and ``trace``. It is on the disk when this returns.

        What a sender cannot say about itself (``id``, ``from``, ``to``, ``timestamp``) the office fills in. A message that
        answers another by ``reply_to`` goes back; to anybody else it counts as passed on. A ``task_update`` changes the
        state of its ``task``, with its text as the note; the office writes the update to the task's owner.
        """
        mailbox = self.mailbox(from_id)
        if msg.get("type") == "task_update":
            _update_task(mailbox, to_id, msg)
            return
        draft = draft_of(to_id, msg)
        answered = msg.get("reply_to")
        if answered and _is_known(mailbox, answered):
            # The office counts ttl and trace.
            mailbox.send({**draft, "parent": answered})
            return
        hops = {key: msg[key] for key in ("ttl", "trace") if msg.get(key) is not None}
        if answered:
            draft["metadata"] = {**draft.get("metadata", {}), "reply_to": answered}
        try:
            mailbox.send({**draft, **hops})
        except UnsupportedError:
            mailbox.send(draft)

    def poll(self, agent_id: str) -> list[dict[str, Any]]:
        """Messages that were not marked as processed yet, oldest first, each with its ``filename``."""
        mailbox = self.mailbox(agent_id)
        try:
            return mailbox.poll(MOST_POLLED)
        except UnsupportedError:
            return self._poll_server(agent_id, mailbox)

    def _poll_server(self, agent_id: str, mailbox: Mailbox) -> list[dict[str, Any]]:
        polled = self._polled.setdefault(agent_id, OrderedDict())
        while len(polled) < MOST_POLLED:
            message = mailbox.next(0, lease=LEASE)
            if message is None:
                break
            filed = filed_of(message)
            # A message whose lease expired is claimed again, under the same name.
            polled[filed["filename"]] = filed
        return [dict(message) for message in polled.values()]

    def mark_processed(self, agent_id: str, filename: str) -> None:
        """Acknowledges the message in this file. Marking twice is no error."""
        mailbox = self.mailbox(agent_id)
        polled = self._polled.get(agent_id)
        if polled is None:
            mailbox.mark_processed(filename)
        elif filename in polled:
            mailbox.ack(polled[filename]["id"])
            del polled[filename]

    def list_online_agents(self) -> list[dict[str, Any]]:
        """The cards of all agents that are online, by name."""
        return [card_of(agent) for agent in self._any_mailbox().agents() if agent["status"] != "offline"]

    def get_agent(self, agent_id: str) -> dict[str, Any] | None:
        """The card of one agent, or None."""
        agent = self._any_mailbox().agent(agent_id)
        return None if agent is None else card_of(agent)

    def _any_mailbox(self) -> Mailbox:
        with self._lock:
            name = next(reversed(self._open), self._default_agent)
        return self.mailbox(name)


def _update_task(mailbox: Mailbox, to_id: str, msg: Mapping[str, Any]) -> None:
    task = msg.get("task")
    if not isinstance(task, Mapping) or not task.get("id") or not task.get("state"):
        raise InvalidError("a task update needs task.id and task.state", code="invalid")
    parts = draft_of(to_id, msg)["parts"]
    if any(part.get("type") != "text" for part in parts):
        detail = "a task update has text only; send data and files in a message with reply_to"
        raise InvalidError(detail, code="invalid")
    owner = mailbox.task(task["id"])["owner"]
    if to_id != owner:
        raise InvalidError(f"the updates of this task go to {owner}, who gave it", code="invalid")
    note = "\n".join(part["text"] for part in parts)
    mailbox.set_task_state(task["id"], task["state"], note or None)


def _is_known(mailbox: Mailbox, message_id: str) -> bool:
    try:
        mailbox.message(message_id)
    except MailboxError as error:
        if error.code in ("not_found", "invalid"):
            return False
        raise
    return True
