"""What MailboxManager promises, one test each."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest
from agent_mailbox import InvalidError, MailboxManager, NotAllowedError, NotFoundError

from conftest import put_file

CARD = {
    "agent_id": "researcher",
    "description": "负责信息检索和分析的 agent",
    "capabilities": ["web_search", "code_analysis"],
    "status": "idle",
    "allow_from": ["*"],
    "max_concurrent_tasks": 3,
    "current_tasks": [],
}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "content": {"parts": [{"type": "text", "text": words}]}, **more}


def words(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["content"]["parts"] if part["type"] == "text")


def registry(root: pathlib.Path) -> dict[str, Any]:
    return json.loads((root / "_registry.json").read_text(encoding="utf-8"))


@pytest.fixture
def pair(manager: MailboxManager) -> MailboxManager:
    for name in ("researcher", "coder"):
        manager.register(name, {"description": name})
    return manager


def test_register_writes_the_card_to_the_registry(manager: MailboxManager, root: pathlib.Path) -> None:
    manager.register("researcher", CARD)
    entry = registry(root)["researcher"]
    for key in ("agent_id", "description", "capabilities", "status", "allow_from", "max_concurrent_tasks", "current_tasks"):
        assert entry[key] == CARD[key]
    assert re.match(r"\d{4}-\d\d-\d\dT", entry["registered_at"]) and entry["last_heartbeat"]
    assert (root / "researcher" / "inbox").is_dir() and (root / "researcher" / "processed").is_dir()


def test_register_again_replaces_the_card_and_keeps_when_it_was_registered(manager: MailboxManager) -> None:
    manager.register("researcher", CARD)
    before = manager.get_agent("researcher")
    manager.register("researcher", {**CARD, "description": "new"})
    after = manager.get_agent("researcher")
    assert before and after and after["description"] == "new"
    assert after["registered_at"] == before["registered_at"]


def test_register_leaves_other_agents_and_unknown_fields_alone(manager: MailboxManager, root: pathlib.Path) -> None:
    root.mkdir()
    theirs = {"agent_id": "writer", "status": "idle", "mood": "good", "last_heartbeat": 1745659200}
    (root / "_registry.json").write_text(json.dumps({"writer": theirs}))
    manager.register("researcher", CARD)
    assert registry(root)["writer"] == theirs


def test_heartbeat_updates_last_heartbeat(pair: MailboxManager) -> None:
    before = pair.get_agent("coder")
    pair.heartbeat("coder")
    after = pair.get_agent("coder")
    assert before and after and after["last_heartbeat"] > before["last_heartbeat"]


def test_heartbeat_of_an_unregistered_agent_is_an_error(manager: MailboxManager) -> None:
    with pytest.raises(NotFoundError, match="not registered"):
        manager.heartbeat("ghost")


def test_heartbeat_restores_an_agent_missing_in_the_registry(pair: MailboxManager, root: pathlib.Path) -> None:
    (root / "_registry.json").write_text("{}")
    pair.update_status("coder", "idle")
    assert {"coder", "researcher"} <= registry(root).keys()


def test_update_status_writes_status_and_current_tasks(pair: MailboxManager, root: pathlib.Path) -> None:
    pair.update_status("coder", "busy", ["msg_1745659200_researcher"])
    assert registry(root)["coder"]["status"] == "busy"
    assert registry(root)["coder"]["current_tasks"] == ["msg_1745659200_researcher"]
    pair.update_status("coder", "idle", [])
    coder = pair.get_agent("coder")
    assert coder and (coder["status"], coder["current_tasks"]) == ("idle", [])


def test_update_status_without_tasks_keeps_them(pair: MailboxManager) -> None:
    pair.update_status("coder", "busy", ["t1"])
    pair.update_status("coder", "busy")
    coder = pair.get_agent("coder")
    assert coder and coder["current_tasks"] == ["t1"]


def test_update_status_refuses_an_unknown_word(pair: MailboxManager) -> None:
    with pytest.raises(InvalidError, match="idle, busy or offline"):
        pair.update_status("coder", "sleeping")


def test_send_writes_one_whole_file_into_the_inbox(pair: MailboxManager, root: pathlib.Path) -> None:
    pair.send("researcher", "coder", text("hello"))
    [path] = (root / "coder" / "inbox").iterdir()
    assert re.fullmatch(r"\d+_researcher(_[0-9a-f]{8})?\.msg\.json", path.name), path.name
    message = json.loads(path.read_text())
    assert (message["from"], message["to"], message["type"]) == ("researcher", "coder", "message")
    assert message["id"].startswith("msg_") and message["timestamp"]


def test_send_fills_in_ttl_and_trace(pair: MailboxManager) -> None:
    pair.send("researcher", "coder", text("hello"))
    [message] = pair.poll("coder")
    assert (message["ttl"], message["trace"]) == (2, ["researcher"])


def test_send_accepts_every_kind_of_part(pair: MailboxManager) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "data", "data": {"k": [1, 2.5]}}, {"type": "file", "path": "/tmp/x"}]
    pair.send("researcher", "coder", {"type": "message", "content": {"parts": parts}})
    [message] = pair.poll("coder")
    assert message["content"]["parts"] == parts


def test_a_task_update_that_is_sent_changes_the_task(pair: MailboxManager) -> None:
    pair.send("researcher", "coder", text("sort it", type="task"))
    [task] = pair.poll("coder")

    def update(to: str, state: str, **more: Any) -> None:
        sent = {"type": "task_update", "task": {"id": task["task"]["id"], "state": state}, **more}
        pair.send("coder", to, {**text("half of it"), **sent})

    update("researcher", "working")
    [message] = pair.poll("researcher")
    assert (message["type"], message["task"]["state"], words(message)) == ("task_update", "working", "half of it")
    with pytest.raises(InvalidError, match="go to researcher"):
        update("coder", "completed")
    with pytest.raises(InvalidError, match="text only"):
        update("researcher", "completed", content={"parts": [{"type": "data", "data": {}}]})
    with pytest.raises(InvalidError, match="task.state"):
        update("researcher", "")
    assert pair.mailbox("coder").task(task["task"]["id"])["state"] == "working"


def test_send_ignores_a_forged_sender(pair: MailboxManager) -> None:
    pair.send("researcher", "coder", text("hello", **{"from": "boss", "id": "forged", "to": "other"}))
    [message] = pair.poll("coder")
    assert (message["from"], message["to"]) == ("researcher", "coder") and message["id"] != "forged"


def test_send_carries_a_task_with_deadline_and_callback(pair: MailboxManager) -> None:
    callback = {"channel": "feishu", "session_id": "feishu:user_123", "chat_id": "user_123"}
    task = {"id": "t", "state": "pending", "deadline": "2099-01-01T00:00:00Z"}
    pair.send("researcher", "coder", text("sort it", type="task", task=task, callback=callback))
    [message] = pair.poll("coder")
    assert message["type"] == "task" and message["task"]["state"] == "pending"
    assert message["task"]["deadline"].startswith("2099-01-01T00:00:00")
    assert "callback" not in message, "where the answer goes is the business of who set it"
    coder = pair.mailbox("coder")
    coder.set_task_state(message["task"]["id"], "completed", "sorted")
    [update] = pair.poll("researcher")
    assert (update["type"], update["task"]["state"]) == ("task_update", "completed")
    assert update["callback"] == callback


def test_send_to_an_agent_that_is_offline_queues(pair: MailboxManager) -> None:
    pair.update_status("coder", "offline")
    pair.send("researcher", "coder", text("later"))
    pair.update_status("coder", "idle")
    assert [words(message) for message in pair.poll("coder")] == ["later"]


def test_send_to_an_unknown_agent_suggests_the_nearest(pair: MailboxManager) -> None:
    with pytest.raises(NotFoundError, match='did you mean "coder"'):
        pair.send("researcher", "codr", text("hello"))


def test_send_from_outside_allow_from_is_refused(pair: MailboxManager) -> None:
    pair.register("coder", {"allow_from": ["writer"]})
    with pytest.raises(NotAllowedError) as caught:
        pair.send("researcher", "coder", text("hello"))
    assert caught.value.code == "not_allowed"


def test_poll_returns_messages_sorted_by_timestamp(pair: MailboxManager, root: pathlib.Path) -> None:
    for stamp, said in ((1745659200000, "third"), (1745659100, "second"), (1745659000000000, "first")):
        put_file(root, "coder", f"{stamp}_researcher.msg.json", {"from": "researcher", "to": "coder", **text(said)})
    assert [words(message) for message in pair.poll("coder")] == ["first", "second", "third"]


def test_poll_returns_a_message_until_it_is_marked(pair: MailboxManager) -> None:
    pair.send("researcher", "coder", text("hello"))
    [first] = pair.poll("coder")
    [again] = pair.poll("coder")
    assert first == again
    pair.mark_processed("coder", first["filename"])
    assert pair.poll("coder") == []


def test_poll_of_an_empty_or_unknown_mailbox_returns_nothing(pair: MailboxManager) -> None:
    assert pair.poll("coder") == []
    assert pair.poll("ghost") == []


def test_poll_keeps_fields_that_it_does_not_know(pair: MailboxManager, root: pathlib.Path) -> None:
    file = {"from": "researcher", "to": "coder", "mood": {"good": True}, **text("hi")}
    put_file(root, "coder", "1745659200_researcher.msg.json", file)
    [message] = pair.poll("coder")
    assert message["mood"] == {"good": True} and message["filename"] == "1745659200_researcher.msg.json"


def test_mark_processed_moves_the_file(pair: MailboxManager, root: pathlib.Path) -> None:
    pair.send("researcher", "coder", text("hello"))
    [message] = pair.poll("coder")
    pair.mark_processed("coder", message["filename"])
    assert [path.name for path in (root / "coder" / "processed").iterdir()] == [message["filename"]]
    assert list((root / "coder" / "inbox").iterdir()) == []


def test_mark_processed_twice_or_of_nothing_is_no_error(pair: MailboxManager) -> None:
    pair.send("researcher", "coder", text("hello"))
    [message] = pair.poll("coder")
    for name in (message["filename"], message["filename"], "nothing.msg.json", "../../../etc/passwd"):
        pair.mark_processed("coder", name)


def test_list_online_agents_omits_offline_agents(pair: MailboxManager) -> None:
    pair.update_status("coder", "offline")
    assert [agent["agent_id"] for agent in pair.list_online_agents()] == ["researcher"]


def test_list_online_agents_omits_agents_without_heartbeats(pair: MailboxManager, root: pathlib.Path) -> None:
    entries = registry(root)
    entries["writer"] = {"agent_id": "writer", "status": "idle", "last_heartbeat": "2026-04-26T10:05:00Z"}
    (root / "_registry.json").write_text(json.dumps(entries))
    assert [agent["agent_id"] for agent in pair.list_online_agents()] == ["coder", "researcher"]
    writer = pair.get_agent("writer")
    assert writer and writer["status"] == "offline"


def test_get_agent_returns_one_card_or_none(manager: MailboxManager) -> None:
    manager.register("researcher", CARD)
    card = manager.get_agent("researcher")
    assert card and {key: card[key] for key in CARD} == CARD
    assert manager.get_agent("ghost") is None
