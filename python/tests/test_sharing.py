"""Python processes and the command line share one directory."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from agent_mailbox import Mailbox, MailboxManager

from conftest import AMB, PATIENCE

#: Registers; when told, sends to everybody while it gives signs of life, and takes its own mail.
PYTHON_AGENT = """
import sys
from agent_mailbox import Mailbox
root, me, rounds, expected, *everybody = sys.argv[1:]
mailbox = Mailbox.directory(root, me)
mailbox.register({"description": me})
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(rounds)):
    mailbox.heartbeat()
    for other in everybody:
        mailbox.send({"to": other, "text": f"{me} {n}"})
got = []
while len(got) < int(expected) and (message := mailbox.next(60)):
    got.append(message["parts"][0]["text"])
    mailbox.ack(message["id"])
print("\\n".join(got), flush=True)
"""

#: The same with the command line: each step is a process of its own, and the mail is taken by another one at the same time.
AMB_AGENT = """
set -eu
amb=$1 root=$2 me=$3 rounds=$4 expected=$5; shift 5
run() { "$amb" --dir "$root" --layout nanobot --as "$me" "$@"; }
run register --description "$me" >&2
echo ready
read -r _
run watch --ack --count "$expected" --json & watching=$!
for n in $(seq 0 $((rounds - 1))); do
  for other in "$@"; do run send "$other" "$me $n" >&2; done
done
wait "$watching"
"""

ROUNDS = {"py": 10, "rs": 2}


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


class Registry:
    """Looks at the registry all the time: it parses at every instant, and nobody who was in it is ever missing."""

    def __init__(self, root: pathlib.Path) -> None:
        self.path = root / "_registry.json"
        self.faults: list[str] = []
        self.known: set[str] = set()
        self.looks = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Registry:
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.is_set():
            try:
                names = set(json.loads(self.path.read_text()))
            except FileNotFoundError:
                if self.known:
                    self.faults.append("the registry is gone")
                continue
            except ValueError as error:
                self.faults.append(str(error))
                continue
            self.looks += 1
            if missing := self.known - names:
                self.faults.append(f"lost: {missing}")
            self.known |= names


def test_four_and_four_processes_lose_no_agent_and_no_message(root: pathlib.Path) -> None:
    assert AMB
    everybody = [f"{side}-{n}" for side in ROUNDS for n in range(4)]
    expected = sum(4 * rounds for rounds in ROUNDS.values())
    with Registry(root) as registry:
        running = {name: start(root, name, expected, everybody) for name in everybody}
        try:
            for process in running.values():
                assert process.stdout and process.stdout.readline() == "ready\n"
            for process in running.values():
                assert process.stdin
                process.stdin.write("\n")
                process.stdin.flush()
            said = {name: process.communicate(timeout=4 * PATIENCE)[0] for name, process in running.items()}
        finally:
            for process in running.values():
                process.kill()
                process.wait()
    assert registry.looks and not registry.faults, registry.faults[:3]
    wanted = sorted(f"{name} {n}" for name in everybody for n in range(ROUNDS[name[:2]]))
    for name, output in said.items():
        assert sorted(texts_of(name, output)) == wanted, name
    with MailboxManager(root) as manager:
        assert all(manager.get_agent(name) for name in everybody)
    for name in everybody:
        assert list((root / name / "inbox").iterdir()) == []
        assert len(os.listdir(root / name / "processed")) == expected


def start(root: pathlib.Path, name: str, expected: int, everybody: list[str]) -> subprocess.Popen[str]:
    told = [root, name, ROUNDS[name[:2]], expected, *everybody]
    command = [sys.executable, "-c", PYTHON_AGENT] if name.startswith("py") else ["bash", "-c", AMB_AGENT, "agent", AMB]
    return subprocess.Popen([*command, *map(str, told)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def texts_of(name: str, output: str) -> list[str]:
    """What an agent got, by its own account."""
    if name.startswith("py"):
        return output.splitlines()
    events = [json.loads(line) for line in output.splitlines()]
    return [event["content"] for event in events]
