"""Python processes and the command line share one directory."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from agent_mailbox import Mailbox, MailboxManager

from conftest import AMB, PATIENCE

#: Registers, then sends to everybody while it gives signs of life, and takes its own mail until told to stop.
BUSY = """
import sys
from agent_mailbox import Mailbox
root, me, count, *others = sys.argv[1:]
mailbox = Mailbox.directory(root, me)
mailbox.register({"description": me})
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(count)):
    mailbox.heartbeat()
    for other in others:
        mailbox.send({"to": other, "text": f"{me} {n}"})
got = 0
while got < int(count) * len(others):
    message = mailbox.next(30)
    if message is None:
        break
    mailbox.ack(message["id"])
    got += 1
print(got, flush=True)
"""


def test_each_sees_what_the_other_wrote(root: pathlib.Path, amb: Callable[..., Any]) -> None:
    office = ("--dir", str(root), "--layout", "nanobot")
    coder = Mailbox.directory(root, "coder")
    coder.register({"capabilities": ["code"]})
    amb(*office, "--as", "boss", "register", "--description", "from the command line")
    amb(*office, "--as", "boss", "send", "coder", "hello", "--kind", "task", "--subject", "Sort")
    task = coder.next(PATIENCE)
    assert task and task["from"] == "boss" and task["kind"] == "task"
    coder.set_task_state(task["task"]["id"], "completed", "sorted")
    inbox = amb(*office, "--as", "boss", "inbox", "--json")
    assert "sorted" in json.dumps(inbox)
    names = {agent["name"] for agent in coder.agents()}
    assert names == {"boss", "coder"}


def test_four_and_four_processes_lose_nobody_and_nothing(
    root: pathlib.Path, python: Callable[..., subprocess.Popen[str]], amb: Callable[..., Any]
) -> None:
    assert AMB
    ours, theirs, count = [f"py-{n}" for n in range(4)], [f"rs-{n}" for n in range(4)], 10
    office = ("--dir", str(root), "--layout", "nanobot")
    for name in theirs:
        amb(*office, "--as", name, "register")
    running = [python(BUSY, root, name, count, *ours) for name in ours]
    for process in running:
        assert process.stdout and process.stdout.readline() == "ready\n"
    # The command line's side: watchers that acknowledge, and senders at the same time.
    watching = [
        subprocess.Popen([AMB, *office, "--as", name, "watch", "--ack", "--count", "4", "--json"], stdout=subprocess.PIPE, text=True)
        for name in theirs
    ]
    done = threading.Event()
    unparseable: list[str] = []
    looks = 0

    def look() -> None:
        nonlocal looks
        while not done.is_set():
            text = (root / "_registry.json").read_text()
            try:
                entries = json.loads(text)
            except ValueError:
                unparseable.append(text)
                continue
            looks += 1
            if len(entries) != 8:
                unparseable.append(f"{len(entries)} agents")

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for process in running:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        sender = Mailbox.directory(root, ours[0])
        for n in range(4):
            for name in theirs:
                sender.send({"to": name, "text": f"for {name} {n}"})
        watched = [process.communicate(timeout=PATIENCE)[0].splitlines() for process in watching]
        got = [process.communicate(timeout=2 * PATIENCE)[0].strip() for process in running]
    finally:
        done.set()
        looking.join()
        for process in (*running, *watching):
            process.kill()
    assert [len(lines) for lines in watched] == [4] * 4
    assert got == [str(count * 4)] * 4
    assert looks and not unparseable, unparseable[:3]
    with MailboxManager(root) as manager:
        assert all(manager.get_agent(name) for name in (*ours, *theirs))
    left = [path for name in (*ours, *theirs) for path in (root / name / "inbox").iterdir()]
    assert left == []
    assert sum(len(os.listdir(root / name / "processed")) for name in ours) == count * 16

