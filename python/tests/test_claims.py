"""One message, one consumer; and it comes back when its consumer dies."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from agent_mailbox import AsyncMailbox, ClosedError, InvalidError, Mailbox

from conftest import PATIENCE

#: Claims one message, says its id, and holds it until told to acknowledge.
CONSUMER = """
import sys
from agent_mailbox import Mailbox
mailbox = Mailbox.directory(sys.argv[1], sys.argv[2], poll_interval=0.2)
print("ready", flush=True)
message = mailbox.next(float(sys.argv[3]))
print(message["id"] if message else "none", flush=True)
if sys.stdin.readline().strip() == "ack":
    print(mailbox.ack(message["id"]), flush=True)
"""

FORKING = """
import os, sys
from agent_mailbox import Mailbox, MailboxError
root = sys.argv[1]
mailbox = Mailbox.directory(root, "ann")
mailbox.register()
child = os.fork()
if child == 0:
    try:
        mailbox.heartbeat()
    except MailboxError as error:
        assert "before a fork" in str(error)
        Mailbox.directory(root, "ann").heartbeat()
        os._exit(0)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

INTERRUPTED = """
import signal, sys
from agent_mailbox import Mailbox
mailbox = Mailbox.directory(sys.argv[1], "ann")
mailbox.register()
# A shell that runs the tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("ready", flush=True)
    while True:
        mailbox.next()
except KeyboardInterrupt:
    sys.exit(7)
"""

Start = Callable[..., "subprocess.Popen[str]"]


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_two_processes_of_one_name_one_gets_the_mail(
    agent: Callable[..., Mailbox], root: pathlib.Path, python: Start
) -> None:
    ann, _ = agent("ann"), agent("ben")
    consumers = [python(CONSUMER, root, "ben", 60), python(CONSUMER, root, "ben", 60)]
    assert [line(consumer) for consumer in consumers] == ["ready", "ready"]
    sent = [ann.send({"to": "ben", "text": str(n)})["message_id"] for n in range(2)]
    # Each holds one of the two: had both taken the first, nobody would have the second.
    assert sorted(line(consumer) for consumer in consumers) == sorted(sent)
    for consumer in consumers:
        assert consumer.communicate("ack\n", timeout=PATIENCE)[0].strip() == "1"


def test_mail_of_a_killed_process_is_released(agent: Callable[..., Mailbox], root: pathlib.Path, python: Start) -> None:
    ann, ben = agent("ann"), agent("ben")
    sent = ann.send({"to": "ben", "text": "hello"})["message_id"]
    holder = python(CONSUMER, root, "ben", 60)
    assert (line(holder), line(holder)) == ("ready", sent)
    assert ben.next(0) is None
    assert [held["id"] for held in ben.claimed()] == [sent]
    heir = python(CONSUMER, root, "ben", 60)
    assert line(heir) == "ready"
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=PATIENCE)
    assert line(heir) == sent
    assert heir.communicate("ack\n", timeout=PATIENCE)[0].strip() == "1"
    assert ben.next(0) is None


def test_a_released_message_is_claimed_again_and_an_acknowledged_one_is_not(agent: Callable[..., Mailbox]) -> None:
    ann, ben = agent("ann"), agent("ben")
    sent = ann.send({"to": "ben", "text": "hello"})["message_id"]
    for _ in range(2):
        message = ben.next(PATIENCE)
        assert message and message["id"] == sent
        assert ben.next(0) is None
        ben.release(sent)
    message = ben.next(PATIENCE)
    assert message and ben.ack(message["id"]) == 1 and ben.ack(message["id"]) == 0
    assert ben.next(0) is None


def test_mail_ends_a_running_wait(agent: Callable[..., Mailbox]) -> None:
    ann, ben = agent("ann"), agent("ben")
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(ben.next(PATIENCE)))
    waiting.start()
    ann.send({"to": "ben", "text": "hello"})
    waiting.join(PATIENCE)
    assert got and got[0]


@pytest.mark.parametrize("end", ["wake", "close"])
def test_a_wait_without_a_timeout_can_be_interrupted(agent: Callable[..., Mailbox], end: str) -> None:
    ben = agent("ben")
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(ben.next()))
    waiting.start()
    getattr(ben, end)()
    waiting.join(PATIENCE)
    assert got == [None]


def test_a_wake_before_the_wait_is_not_lost(agent: Callable[..., Mailbox]) -> None:
    ben = agent("ben")
    ben.wake()
    assert ben.next() is None
    assert ben.next(0) is None


def test_closing_releases_claims_and_closes_the_mailbox(agent: Callable[..., Mailbox]) -> None:
    ann, ben, other = agent("ann"), agent("ben"), agent("ben")
    ann.send({"to": "ben", "text": "hello"})
    assert ben.next(PATIENCE) and other.next(0) is None
    ben.close()
    ben.close()
    assert ben.closed and other.next(PATIENCE)
    with pytest.raises(ClosedError) as caught:
        ben.next(0)
    assert caught.value.code == "closed"


def test_a_wait_does_not_block_other_threads(agent: Callable[..., Mailbox]) -> None:
    ben = agent("ben")
    waiting = threading.Thread(target=ben.next)
    waiting.start()
    # With the GIL held this thread would never come to the end of its loop.
    for _ in range(100):
        ben.heartbeat()
    assert waiting.is_alive()
    ben.close()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_a_timeout_is_a_number_of_seconds(agent: Callable[..., Mailbox], timeout: float) -> None:
    with pytest.raises(InvalidError):
        agent("ben").next(timeout)


def test_a_mailbox_is_not_used_across_a_fork(root: pathlib.Path) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING, str(root)], check=True, timeout=PATIENCE)


def test_ctrl_c_ends_a_wait(root: pathlib.Path, python: Start) -> None:
    waiting = python(INTERRUPTED, root)
    assert line(waiting) == "ready"
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(PATIENCE) == 7


def test_asyncio_waits_without_blocking_the_loop(agent: Callable[..., Mailbox], root: pathlib.Path) -> None:
    ann, _ = agent("ann"), agent("ben")

    async def main() -> None:
        async with await AsyncMailbox.directory(root, "ben") as ben:
            waiting = [asyncio.create_task(ben.next(PATIENCE)) for _ in range(2)]
            await ben.heartbeat()
            cancelled, waited = waiting
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            ann.send({"to": "ben", "text": "hello"})
            message = await waited
            assert message
            await ben.release(message["id"])
            async for again in ben:
                assert again["id"] == message["id"]
                assert await ben.ack(again["id"]) == 1
                break
            with pytest.raises(InvalidError):
                await ben.send({"to": "../x", "text": "hello"})
        with pytest.raises(ClosedError):
            await ben.heartbeat()

    asyncio.run(main())


def test_a_cancelled_wait_loses_no_mail(agent: Callable[..., Mailbox], root: pathlib.Path) -> None:
    ann, _ = agent("ann"), agent("ben")

    async def main() -> None:
        async with await AsyncMailbox.directory(root, "ben") as ben:
            for n in range(30):
                waiting = asyncio.create_task(ben.next(PATIENCE))
                sending = asyncio.create_task(asyncio.to_thread(ann.send, {"to": "ben", "text": str(n)}))
                await asyncio.sleep(0)
                waiting.cancel()
                claimed = (await asyncio.gather(waiting, return_exceptions=True))[0]
                await sending
                if isinstance(claimed, asyncio.CancelledError) or claimed is None:
                    claimed = await ben.next(PATIENCE)
                assert isinstance(claimed, dict)
                assert await ben.ack(claimed["id"]) == 1

    asyncio.run(main())
