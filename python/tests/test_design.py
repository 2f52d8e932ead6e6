"""The design's own plan (seed 000) under its names: anti-loop, acceptance, agent states, task lifecycle, error scenarios."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from agent_mailbox import LoopRefusedError, MailboxManager

from conftest import PATIENCE

BEATING = """
import sys
from agent_mailbox import MailboxManager
manager = MailboxManager(sys.argv[1])
manager.register(sys.argv[2], {})
for _ in range(50):
    manager.heartbeat(sys.argv[2])
"""


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "content": {"parts": [{"type": "text", "text": words}]}, **more}


def words(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["content"]["parts"] if part["type"] == "text")


@pytest.fixture
def pair(manager: MailboxManager) -> MailboxManager:
    for name in ("researcher", "coder"):
        manager.register(name, {"description": name})
    return manager


def given(manager: MailboxManager, said: str = "work", **task: Any) -> str:
    """A task from researcher to coder that coder has taken out of its mailbox."""
    manager.send("researcher", "coder", text(said, type="task", task=task))
    message = manager.poll("coder")[-1]
    manager.mark_processed("coder", message["filename"])
    return str(message["task"]["id"])


def status(manager: MailboxManager) -> str:
    card = manager.get_agent("coder")
    assert card
    return str(card["status"])


def updates(manager: MailboxManager) -> list[tuple[str, str]]:
    return [(update["task"]["state"], words(update)) for update in manager.poll("researcher")]


# Anti-loop mechanism.


def test_a_b_mutual_ping(pair: MailboxManager) -> None:
    """A natural answer passes; going round does not."""
    pair.send("researcher", "coder", text("ping"))
    [ping] = pair.poll("coder")
    pair.send("coder", "researcher", text("pong", reply_to=ping["id"], ttl=ping["ttl"], trace=ping["trace"]))
    [pong] = pair.poll("researcher")
    assert (words(pong), pong["reply_to"]) == ("pong", ping["id"])
    with pytest.raises(LoopRefusedError):
        pair.send("researcher", "coder", text("ping again", ttl=pong["ttl"], trace=["researcher", "coder"]))


def test_a_b_c_a_cycle(pair: MailboxManager) -> None:
    pair.register("writer", {})
    pair.send("researcher", "coder", text("go on"))
    [first] = pair.poll("coder")
    pair.send("coder", "writer", text("go on", reply_to=first["id"]))
    [second] = pair.poll("writer")
    assert (second["ttl"], second["trace"]) == (1, ["researcher", "coder"])
    with pytest.raises(LoopRefusedError, match="has already handled this"):
        pair.send("writer", "researcher", text("go on", reply_to=second["id"]))


def test_a_b_c_d_infinite_chain(manager: MailboxManager) -> None:
    chain = ["a", "b", "c", "d", "e"]
    for name in chain:
        manager.register(name, {})
    more: dict[str, Any] = {}
    for sender, receiver in zip(chain, chain[1:-1], strict=False):
        manager.send(sender, receiver, text("on", **more))
        [message] = manager.poll(receiver)
        more = {"reply_to": message["id"]}
    assert message["ttl"] == 0
    with pytest.raises(LoopRefusedError, match="do the work yourself"):
        manager.send("d", "e", text("on", **more))


def test_a_program_that_counts_hops_itself_is_bound_by_its_trace(pair: MailboxManager) -> None:
    with pytest.raises(LoopRefusedError):
        pair.send("researcher", "coder", text("round", ttl=1, trace=["coder", "writer"]))
    pair.send("researcher", "coder", text("on", ttl=1, trace=["writer"]))
    [message] = pair.poll("coder")
    assert (message["ttl"], message["trace"]) == (1, ["writer", "researcher"])


# Task acceptance criteria: 1 is allow_from mismatch below, 4 is the model's.


def test_current_tasks_count_below_max_concurrent_tasks(pair: MailboxManager) -> None:
    pair.register("coder", {"max_concurrent_tasks": 1})
    pair.mailbox("coder").set_task_state(given(pair, "one"), "working")
    pair.send("researcher", "coder", text("two", type="task"))
    state, reason = updates(pair)[-1]
    assert state == "rejected" and "quota" in reason


def test_deadline_has_not_expired(pair: MailboxManager) -> None:
    task = given(pair, deadline="2099-01-01T00:00:00Z")
    assert pair.mailbox("coder").set_task_state(task, "accepted")["state"] == "accepted"


# Agent states.


def test_startup_idle_accept_busy_all_completed_idle(pair: MailboxManager) -> None:
    assert status(pair) == "idle"
    coder, tasks = pair.mailbox("coder"), [given(pair, "one"), given(pair, "two")]
    for task in tasks:
        coder.set_task_state(task, "accepted")
        assert status(pair) == "busy"
    coder.set_task_state(tasks[0], "completed", "done")
    assert status(pair) == "busy"
    coder.set_task_state(tasks[1], "completed", "done")
    assert status(pair) == "idle"


# Task lifecycle.


def test_pending_accepted_working_completed(pair: MailboxManager) -> None:
    task, coder = given(pair), pair.mailbox("coder")
    for state in ("accepted", "working", "completed"):
        coder.set_task_state(task, state, state)
    assert [state for state, _ in updates(pair)] == ["accepted", "working", "completed"]
    card = pair.get_agent("coder")
    assert card and card["current_tasks"] == []


def test_pending_accepted_failed(pair: MailboxManager) -> None:
    task, coder = given(pair), pair.mailbox("coder")
    coder.set_task_state(task, "accepted")
    coder.set_task_state(task, "failed", "no such file")
    assert updates(pair)[-1] == ("failed", "no such file")


# Error scenarios.


def test_target_agent_offline(pair: MailboxManager) -> None:
    pair.update_status("coder", "offline")
    pair.send("researcher", "coder", text("later"))
    pair.update_status("coder", "idle")
    assert [words(message) for message in pair.poll("coder")] == ["later"]


def test_heartbeat_timeout(pair: MailboxManager, root: pathlib.Path) -> None:
    entries = json.loads((root / "_registry.json").read_text())
    entries["writer"] = {"agent_id": "writer", "status": "idle", "last_heartbeat": "2026-04-26T10:05:00Z"}
    (root / "_registry.json").write_text(json.dumps(entries))
    writer = pair.get_agent("writer")
    assert writer and writer["status"] == "offline"
    assert "writer" not in [agent["agent_id"] for agent in pair.list_online_agents()]


def test_agent_crash_during_task(pair: MailboxManager) -> None:
    """Nobody says how it ended; the sender sees by the deadline that it is overdue."""
    researcher = pair.mailbox("researcher")
    sent = researcher.send({"to": "coder", "text": "quick", "kind": "task", "deadline": "1s"})
    pair.mailbox("coder").set_task_state(sent["task"]["id"], "working")
    while not (task := researcher.task(sent["task"]["id"])).get("overdue"):
        assert task["state"] == "working"
    assert task["state"] == "working"


def test_task_rejected(pair: MailboxManager) -> None:
    pair.mailbox("coder").set_task_state(given(pair), "rejected", "I know no Fortran")
    assert updates(pair) == [("rejected", "I know no Fortran")]


def test_task_deadline_expired(pair: MailboxManager) -> None:
    pair.send("researcher", "coder", text("late", type="task", task={"deadline": "2026-04-26T11:00:00Z"}))
    [(state, reason)] = updates(pair)
    assert state == "rejected" and "deadline" in reason
    assert pair.poll("coder") == []


def test_allow_from_mismatch(pair: MailboxManager) -> None:
    pair.register("coder", {"allow_from": ["writer"]})
    pair.send("researcher", "coder", text("please", type="task"))
    [(state, reason)] = updates(pair)
    assert state == "rejected" and "unauthorized" in reason


def test_registry_concurrent_write(root: pathlib.Path, python: Callable[..., subprocess.Popen[str]]) -> None:
    names = [f"agent-{n}" for n in range(4)]
    for process in [python(BEATING, root, name) for name in names]:
        assert process.wait(PATIENCE) == 0
    assert sorted(json.loads((root / "_registry.json").read_text())) == names
