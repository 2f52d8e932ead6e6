"""A throwaway office in a directory, the binary that shares it, and an office on the network."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agent_mailbox import Mailbox, MailboxManager

#: How long a test waits for something that must come, in seconds.
PATIENCE = 60.0

AMB = os.environ.get("AMB")


def put_file(root: pathlib.Path, to: str, name: str, content: Any) -> pathlib.Path:
    """What another program would put into an inbox."""
    path = root / to / "inbox" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "mailboxes"


@pytest.fixture
def manager(root: pathlib.Path) -> Iterator[MailboxManager]:
    with MailboxManager(root) as manager:
        yield manager


@pytest.fixture
def agent(root: pathlib.Path) -> Iterator[Callable[..., Mailbox]]:
    """Registers an agent and returns its mailbox."""
    opened: list[Mailbox] = []

    def register(name: str, **card: Any) -> Mailbox:
        mailbox = Mailbox.directory(root, name)
        mailbox.register(card)
        opened.append(mailbox)
        return mailbox

    yield register
    for mailbox in opened:
        mailbox.close()


@pytest.fixture
def amb() -> Callable[..., Any]:
    """Runs the command line; returns its JSON, where there is some."""
    if AMB is None:
        pytest.fail("AMB names the binary `amb`")

    def run(*args: str, **options: Any) -> Any:
        done = subprocess.run([AMB, *args], capture_output=True, text=True, timeout=PATIENCE, check=False, **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in args and done.stdout else done.stdout

    return run


@pytest.fixture
def python() -> Callable[..., subprocess.Popen[str]]:
    """Starts a Python program with the package; its standard streams are pipes."""

    def start(program: str, *args: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[str]:
    """The address of an office on the network."""
    if AMB is None:
        pytest.fail("AMB names the binary `amb`")
    home = tmp_path / "server"
    home.mkdir()
    serving = subprocess.Popen(
        [AMB, "serve", "--listen", "127.0.0.1:0", "--database-url", f"sqlite:{home}/mail.db", "--rate-limits", "off"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(home)},
    )
    try:
        yield _address(serving)
    finally:
        serving.kill()
        serving.wait()


def _address(serving: subprocess.Popen[str]) -> str:
    lines = []
    assert serving.stderr is not None
    for line in serving.stderr:
        lines.append(line)
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found[0]
    raise AssertionError("the server did not start: " + "".join(lines))
