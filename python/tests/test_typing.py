"""The stubs agree with the module, and a type checker sees the package as typed."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import agent_mailbox

PACKAGE = pathlib.Path(agent_mailbox.__file__).parent

#: What a user writes, with two mistakes that a type checker must find.
PROGRAM = """
from agent_mailbox import AsyncMailbox, GroupTranscriptStore, Mailbox, MailboxManager

box = Mailbox.directory("/tmp/x", "ann", poll_interval=1.0)
message = box.next(5, lease=60.0)
if message is not None:
    done: int = box.ack(message["id"])
recent: list[dict[str, object]] = GroupTranscriptStore("/tmp/t").get_recent("feishu:oc_1", 5)
MailboxManager("/tmp/x").send("ann", "ben", {"content": "hi"})
reveal_type(box.name)
box.set_status("sleeping")
wrong: str = box.ack("id")

async def wait(mailbox: AsyncMailbox) -> None:
    async for mail in mailbox:
        await mailbox.ack(mail["id"])
"""


def mypy(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--no-incremental", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_stubs_agree_with_the_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "agent_mailbox._native"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_itself_is_free_of_type_errors(tmp_path: pathlib.Path) -> None:
    assert (PACKAGE / "py.typed").exists() and (PACKAGE / "_native.pyi").exists()
    # The half for nanobot needs nanobot, which has types of its own in each version.
    (tmp_path / "agent_mailbox").mkdir()
    for file in (*PACKAGE.glob("*.py"), *PACKAGE.glob("*.pyi")):
        (tmp_path / "agent_mailbox" / file.name).write_text(file.read_text())
    done = mypy("--strict", tmp_path / "agent_mailbox")
    assert (done.returncode, done.stdout.startswith("Success")) == (0, True), done.stdout + done.stderr


def test_type_errors_in_user_code_are_found(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = mypy("--strict", program)
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert done.returncode == 1 and len(errors) == 2, done.stdout + done.stderr
    assert "sleeping" in errors[0] and "int" in errors[1] and "str" in errors[1]
    assert 'Revealed type is "builtins.str"' in done.stdout or 'Revealed type is "str"' in done.stdout


def test_async_mailbox_has_every_method_of_mailbox() -> None:
    verbs = {name for name in dir(agent_mailbox.Mailbox) if not name.startswith("_")}
    assert verbs - set(dir(agent_mailbox.AsyncMailbox)) == {"poll", "mark_processed"}, "those of MailboxManager"
