"""One test for each thing that earlier code got wrong (see the table in docs/python.md)."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable

import pytest
from agent_mailbox import InvalidError, Mailbox, MailboxManager

from conftest import PATIENCE, put_file

BEATING = """
import sys
from agent_mailbox import MailboxManager
root, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
manager = MailboxManager(root)
manager.register(name, {"description": name})
for _ in range(count):
    manager.heartbeat(name)
    manager.update_status(name, "idle")
"""


def test_a_natural_reply_to_a_peer_is_delivered(agent: Callable[..., Mailbox]) -> None:
    alpha, beta = agent("alpha"), agent("beta")
    alpha.send({"to": "beta", "text": "question"})
    question = beta.next(PATIENCE)
    assert question
    beta.send({"to": "alpha", "text": "answer", "reply_to": question["id"], "automatic": True})
    answer = alpha.next(PATIENCE)
    assert answer and answer["reply_to"] == question["id"]


def test_a_reply_to_a_message_without_ttl_and_trace_works(agent: Callable[..., Mailbox], root: pathlib.Path) -> None:
    alpha, beta = agent("alpha"), agent("beta")
    put_file(root, "beta", "1745659200_alpha.msg.json", {"from": "alpha", "to": "beta", "content": "hi"})
    bare = beta.next(PATIENCE)
    assert bare and (bare["ttl"], bare["trace"]) == (2, ["alpha"])
    beta.send({"to": "alpha", "text": "yes?", "parent": bare["id"]})
    assert alpha.next(PATIENCE)


def test_300_heartbeats_of_four_processes_each_keep_the_registry_intact(
    root: pathlib.Path, python: Callable[..., subprocess.Popen[str]]
) -> None:
    names = [f"agent-{n}" for n in range(4)]
    running = [python(BEATING, root, name, 300) for name in names]
    seen = 0
    while any(process.poll() is None for process in running):
        if (root / "_registry.json").exists():
            json.loads((root / "_registry.json").read_text())
            seen += 1
    assert seen and all(process.returncode == 0 for process in running)
    assert sorted(json.loads((root / "_registry.json").read_text())) == names


@pytest.mark.parametrize("bad", ["{ not json", '{"from": "alpha"', "\x00\x01", '{"from": "../x", "to": "beta"}'])
def test_a_malformed_file_does_not_block_others(agent: Callable[..., Mailbox], root: pathlib.Path, bad: str) -> None:
    alpha, beta = agent("alpha"), agent("beta")
    path = put_file(root, "beta", "1745659200_alpha.msg.json", bad)
    alpha.send({"to": "beta", "text": "whole"})
    message = beta.next(PATIENCE)
    assert message and message["parts"] == [{"type": "text", "text": "whole"}]
    beta.ack(message["id"])
    # A file that ends too soon may still be written to: it stays for a second.
    assert path.exists() or [kept.name for kept in (root / "beta" / "corrupt").iterdir()] == [path.name]


@pytest.mark.parametrize("odd", ["[1, 2]", "null", "7", '"text"', "true"])
def test_json_other_than_an_object_is_skipped(manager: MailboxManager, root: pathlib.Path, odd: str) -> None:
    for name in ("alpha", "beta"):
        manager.register(name, {})
    put_file(root, "beta", "1745659200_alpha.msg.json", odd)
    manager.send("alpha", "beta", {"content": "whole"})
    assert len(manager.poll("beta")) == 1
    assert len(list((root / "beta" / "corrupt").iterdir())) == 1


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "..", ".", "a/../../outside", "_registry.json", "a\x00b"])
def test_no_name_escapes_the_directory(manager: MailboxManager, root: pathlib.Path, name: str) -> None:
    manager.register("alpha", {})
    for verb in (
        lambda: manager.send("alpha", name, {"content": "hi"}),
        lambda: manager.register(name, {}),
        lambda: manager.poll(name),
    ):
        with pytest.raises(InvalidError):
            verb()
    assert not (root.parent / "outside").exists()


def test_an_empty_name_is_refused(manager: MailboxManager, root: pathlib.Path) -> None:
    with pytest.raises(InvalidError, match="cannot be empty"):
        manager.register("", {})
    assert not (root / "inbox").exists()


def test_a_callback_is_shown_only_to_the_agent_that_set_it(agent: Callable[..., Mailbox]) -> None:
    alpha, beta = agent("alpha"), agent("beta")
    callback = {"channel": "feishu", "chat_id": "user_1", "session_id": "feishu:user_1"}
    sent = alpha.send({"to": "beta", "text": "do it", "kind": "task", "callback": callback})
    task = beta.next(PATIENCE)
    assert task and "callback" not in task
    assert "callback" not in beta.task(sent["task"]["id"])
    beta.set_task_state(sent["task"]["id"], "completed", "done")
    update = alpha.next(PATIENCE)
    assert update and update["callback"] == callback


def test_ids_are_unique_within_a_millisecond(agent: Callable[..., Mailbox]) -> None:
    alpha, beta = agent("alpha"), agent("beta")
    sent = {alpha.send({"to": "beta", "text": str(n)})["message_id"] for n in range(50)}
    assert len(sent) == 50
    got = []
    while message := beta.next(0):
        got.append(message["id"])
        beta.ack(message["id"])
    assert set(got) == sent and len(got) == 50


def test_acceptance_is_decided_by_the_office(agent: Callable[..., Mailbox]) -> None:
    alpha, beta, _ = agent("alpha"), agent("beta", max_concurrent_tasks=1), agent("gamma", allow_from=["beta"])
    late = alpha.send({"to": "beta", "text": "late", "kind": "task", "deadline": "2026-01-01T00:00:00Z"})
    assert (late["task"]["state"], "deadline" in late["reason"]) == ("rejected", True)
    stranger = alpha.send({"to": "gamma", "text": "hi", "kind": "task"})
    assert (stranger["task"]["state"], "unauthorized" in stranger["reason"]) == ("rejected", True)
    first = alpha.send({"to": "beta", "text": "one", "kind": "task"})
    beta.set_task_state(first["task"]["id"], "accepted")
    second = alpha.send({"to": "beta", "text": "two", "kind": "task"})
    assert (second["task"]["state"], "quota" in second["reason"]) == ("rejected", True)
    busy = alpha.agent("beta")
    assert busy and busy["status"] == "busy"


def test_an_agent_without_heartbeats_is_shown_offline(agent: Callable[..., Mailbox], root: pathlib.Path) -> None:
    alpha = agent("alpha")
    entries = json.loads((root / "_registry.json").read_text())
    entries["crashed"] = {"agent_id": "crashed", "status": "idle", "last_heartbeat": "2026-01-01T00:00:00Z"}
    (root / "_registry.json").write_text(json.dumps(entries))
    crashed = alpha.agent("crashed")
    assert crashed and crashed["status"] == "offline"
