"""Files and names that earlier nanobots wrote."""

from __future__ import annotations

import pathlib

import pytest
from agent_mailbox import ConflictError, Mailbox, MailboxManager, NotFoundError, text_of

from conftest import PATIENCE, put_file


@pytest.mark.parametrize("name", ["代码 助手", "Zoë", "Zoe\u0308", "हिन्दी", "code reviewer"])
def test_names_of_any_script_are_read_and_answered(root: pathlib.Path, name: str) -> None:
    with MailboxManager(root) as manager:
        for agent in ("coder", name):
            manager.register(agent, {})
        manager.send(name, "coder", {"content": "question"})
        [question] = manager.poll("coder")
        assert (question["from"], question["trace"]) == (name, [name])
        manager.send("coder", name, {"content": "answer", "reply_to": question["id"]})
        [answer] = manager.poll(name)
        assert (answer["to"], answer["reply_to"]) == (name, question["id"])
        assert [agent["agent_id"] for agent in manager.list_online_agents()] == sorted(["coder", name])
    assert (root / name / "inbox").is_dir()
    coder = Mailbox.directory(root, "coder")
    message = coder.next(PATIENCE)
    assert message and f'New message from "{name}"' in coder.render(message)


def test_a_string_task_and_an_unknown_type_are_read(root: pathlib.Path) -> None:
    coder = Mailbox.directory(root, "coder")
    coder.register()
    file = {"from": "boss", "to": "coder", "content": {"parts": [{"type": "text", "text": "hi"}]}}
    put_file(root, "coder", "1745659200_boss.msg.json", {**file, "type": "task", "task": "task_1"})
    put_file(root, "coder", "1745659201_boss.msg.json", {**file, "type": "task_result", "task": "task_1"})
    task, result = coder.next(PATIENCE), coder.next(PATIENCE)
    assert task and (task["kind"], task["task"]["id"]) == ("task", "task_1")
    assert result and (result["kind"], text_of(result), result["metadata"]["task"]) == ("task_result", "hi", "task_1")


def test_names_that_differ_by_a_space_are_two_agents(root: pathlib.Path) -> None:
    with MailboxManager(root) as manager:
        for agent in ("a b", "a-b"):
            manager.register(agent, {})
        manager.send("a b", "a-b", {"type": "task", "content": "sort it"})
        [task] = manager.poll("a-b")
        assert (task["from"], task["type"], task["task"]["state"]) == ("a b", "task", "pending")


def test_a_look_alike_name_is_reported_as_different(root: pathlib.Path) -> None:
    composed, decomposed = "Zo\u00eb", "Zoe\u0308"
    with MailboxManager(root) as manager:
        for agent in ("coder", composed):
            manager.register(agent, {})
        with pytest.raises(ConflictError, match="look the same"):
            manager.register(decomposed, {})
        with pytest.raises(NotFoundError, match="look the same"):
            manager.send("coder", decomposed, {"content": "to whom?"})
    assert not (root / decomposed).exists()
