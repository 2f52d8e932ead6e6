"""The same verbs at an office on the network."""

from __future__ import annotations

import json
import threading
import urllib.request
from typing import Any

import pytest
from agent_mailbox import Mailbox, MailboxManager, NotAllowedError, NotFoundError, UnavailableError, UnsupportedError

from conftest import PATIENCE


def post(url: str, body: dict[str, Any], key: str = "-") -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "X-API-Key": key}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


@pytest.fixture
def keys(server: str) -> dict[str, str]:
    """Two agents that are connected."""
    keys = {name: post(f"{server}/agents/register", {"name": name})["api_key"] for name in ("ann", "ben")}
    ann, ben = (Mailbox.server(server, keys[name]) for name in ("ann", "ben"))
    ben.approve(ann.connect("ben", "hello")["verification_code"])
    assert [peer["agent_name"] for peer in ben.connections()] == ["ann"]
    return keys


def test_a_task_and_its_answer(server: str, keys: dict[str, str]) -> None:
    ann, ben = (Mailbox.server(server, keys[name]) for name in ("ann", "ben"))
    assert (ann.name, server in ann.where) == ("ann", True)
    ben.register({"description": "works"})
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(ben.next(PATIENCE)))
    waiting.start()
    callback = {"channel": "feishu", "chat_id": "c"}
    sent = ann.send({"to": "ben", "subject": "Sort", "text": "sort it", "kind": "task", "callback": callback})
    waiting.join(PATIENCE)
    [task] = got
    assert task["id"] == sent["message_id"] and "callback" not in task
    assert ben.next(0) is None and [held["id"] for held in ben.claimed()] == [task["id"]]
    ben.set_task_state(task["task"]["id"], "completed", "sorted")
    update = ann.next(PATIENCE)
    assert update and (update["kind"], update["callback"]) == ("task_update", callback)
    assert ann.ack(update["id"]) == 1
    assert ann.task(sent["task"]["id"])["state"] == "completed"
    ben.set_status("offline")
    entry = ann.agent("ben")
    assert entry and entry["status"] == "offline"


def test_a_wait_at_a_server_can_be_interrupted(server: str, keys: dict[str, str]) -> None:
    ben = Mailbox.server(server, keys["ben"])
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(ben.next()))
    waiting.start()
    ben.close()
    waiting.join(PATIENCE)
    assert got == [None]


def test_a_server_has_no_files_and_a_wrong_key_is_refused(server: str, keys: dict[str, str]) -> None:
    with pytest.raises(UnsupportedError, match="no files"):
        Mailbox.server(server, keys["ben"]).poll()
    with pytest.raises(NotAllowedError) as caught:
        Mailbox.server(server, "amb_wrong")
    assert caught.value.code == "unauthorized" and "amb_wrong" not in str(caught.value)


def test_an_unreachable_server_is_unavailable() -> None:
    with pytest.raises(UnavailableError) as caught:
        Mailbox.server("http://127.0.0.1:9", "key")
    assert caught.value.may_succeed_later


def test_one_task_is_found_among_many(server: str, keys: dict[str, str]) -> None:
    ann, ben = (Mailbox.server(server, keys[name]) for name in ("ann", "ben"))
    ben.register({"max_concurrent_tasks": 200})
    first = ann.send({"to": "ben", "text": "first", "kind": "task", "subject": "S"})["task"]["id"]
    for n in range(500):
        ann.send({"to": "ben", "text": str(n), "kind": "task", "subject": "S"})
    assert first not in [task["id"] for task in ann.tasks()], "a list has its newest 500"
    assert ann.task(first)["id"] == ben.task(first)["id"] == first
    with pytest.raises(NotFoundError):
        ann.task("no-such-task")


def test_a_lease_is_renewed(server: str, keys: dict[str, str]) -> None:
    ann, ben = (Mailbox.server(server, keys[name]) for name in ("ann", "ben"))
    for text in ("kept", "lost"):
        ann.send({"to": "ben", "text": text, "subject": text})
    kept, lost = ben.next(PATIENCE, lease=1.0), ben.next(PATIENCE, lease=1.0)
    assert kept and lost
    ben.renew(kept["id"], lease=600.0)
    while (back := ben.next(0)) is None:
        assert ben.claimed(), "the lease of one has not run out yet, or it comes back"
    assert back["id"] == lost["id"]
    assert [held["id"] for held in ben.claimed() if held["id"] == kept["id"]] and ben.next(0) is None


def test_the_methods_of_the_manager(server: str, keys: dict[str, str]) -> None:
    with MailboxManager.server(server, keys) as manager:
        manager.register("ben", {"description": "works"})
        manager.heartbeat("ben")
        manager.send("ann", "ben", {"type": "message", "subject": "S", "content": {"parts": [{"type": "text", "text": "hi"}]}})
        [message] = manager.poll("ben")
        assert (message["from"], message["type"], message["content"]["parts"][0]["text"]) == ("ann", "message", "hi")
        assert manager.poll("ben") == [message]
        manager.send("ben", "ann", {"content": "back", "reply_to": message["id"]})
        manager.mark_processed("ben", message["filename"])
        assert manager.poll("ben") == []
        [answer] = manager.poll("ann")
        assert answer["reply_to"] == message["id"]
        assert "ben" in [agent["agent_id"] for agent in manager.list_online_agents()]
        manager.update_status("ben", "offline")
        ben = manager.get_agent("ben")
        assert ben and ben["status"] == "offline"
