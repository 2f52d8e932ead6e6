"""The examples of the documentation run as they stand."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from conftest import PATIENCE

REPOSITORY = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/python.md", "python/README.md"])
def test_the_first_example_runs(page: str, tmp_path: pathlib.Path) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert example
    done = subprocess.run(
        [sys.executable, "-c", example[1]],
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".nanobot" / "mailboxes" / "ben" / "inbox").is_dir()


def test_the_asyncio_example_runs(tmp_path: pathlib.Path) -> None:
    text = (REPOSITORY / "docs/python.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(async with.*?)```", text, re.DOTALL)
    assert example
    body = example[1].replace("        ...\n", "").replace(
        'await ben.ack(message["id"])\n', 'await ben.ack(message["id"])\n        break\n'
    )
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    program = (
        "import asyncio\nfrom agent_mailbox import AsyncMailbox, Mailbox\n"
        'ben = Mailbox.directory("~/.nanobot/mailboxes", "ben")\nben.register()\nben.send({"to": "ben", "text": "note"})\n'
        f"async def main():\n{indented}\nasyncio.run(main())\nassert ben.inbox(True)['sessions'] == []\n"
    )
    subprocess.run([sys.executable, "-c", program], env={"HOME": str(tmp_path)}, timeout=PATIENCE, check=True)


def test_the_smoke_test_runs(tmp_path: pathlib.Path) -> None:
    smoke = pathlib.Path(__file__).with_name("smoke.py")
    subprocess.run([sys.executable, smoke, str(tmp_path / "mail")], timeout=PATIENCE, check=True)
