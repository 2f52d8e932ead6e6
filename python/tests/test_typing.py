"""The stubs agree with the module."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import agent_mailbox


def test_the_stubs_agree_with_the_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "agent_mailbox._native"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_typed() -> None:
    package = pathlib.Path(agent_mailbox.__file__).parent
    assert (package / "py.typed").exists() and (package / "_native.pyi").exists()
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "-p", "agent_mailbox", "--exclude", "nanobot"],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stdout.splitlines() if "error:" in line and "agent_mailbox/nanobot/" not in line]
    assert not ours, "\n".join(ours)


def test_async_mailbox_has_every_verb_of_mailbox() -> None:
    only_sync = {"poll", "mark_processed", "directory", "server"}
    verbs = {name for name in dir(agent_mailbox.Mailbox) if not name.startswith("_")} - only_sync
    assert verbs <= set(dir(agent_mailbox.AsyncMailbox))
