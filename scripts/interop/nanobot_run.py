"""Real nanobots that write to each other: delegation, its failures, loops, group chats, and how soon mail reaches the model.

Run by scripts/interop-nanobot with the Python that has nanobot. The model is a stand-in on loopback (nanobot_model.py).
"""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
import time

import agent_mailbox
from nanobot_case import HAS_CONTEXT, NANOBOT, VERSION, Case, say
from nanobot_delegation import delegated, in_parts, killed, own_tool, quota, ring, waits_for_b
from nanobot_gateway import Person, until
from nanobot_latency import soon
from nanobot_sharing import group, network, same_name

STEPS = (delegated, waits_for_b, quota, killed, ring, in_parts, own_tool, group, network, soon, same_name)


def install_group_chat(stack):
    """Puts the channel of the group chat where this nanobot finds it, for as long as the test runs."""
    packages = next(pathlib.Path(NANOBOT).parent.parent.glob("lib/python3*/site-packages"))
    added = [packages / "nanobot/channels/groupchat"]
    if not HAS_CONTEXT:
        # By an entry point, as before 0.3.
        added = [packages / "amb_groupchat", packages / "amb_groupchat-0.dist-info"]
    for directory in added:
        shutil.rmtree(directory, ignore_errors=True)
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
    shutil.copytree(pathlib.Path(__file__).parent / "nanobot_groupchat", added[0])
    if not HAS_CONTEXT:
        added[1].mkdir()
        (added[1] / "METADATA").write_text("Metadata-Version: 2.1\nName: amb-groupchat\nVersion: 0\n")
        (added[1] / "entry_points.txt").write_text("[nanobot.channels]\ngroupchat = amb_groupchat.runtime:GroupChatChannel\n")


def main():
    wanted = set(sys.argv[1:])
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(tempfile.TemporaryDirectory(prefix="amb-nanobot-"))
        install_group_chat(stack)
        case = Case(stack, work)
        for gateway in (case.a, case.b, case.c):
            gateway.start()
        listed = case.a.run("plugins", "list")
        assert "mailbox" in listed.lower(), listed
        say("nanobot plugins list shows the channel")
        for gateway in (case.a, case.b, case.c):
            gateway.ready()
        until(30, "all are idle", lambda: all(case.is_status(name, "idle") for name in "abc"))
        person = Person(case.a)
        try:
            for step in STEPS:
                if not wanted or step.__name__ in wanted:
                    begun = time.monotonic()
                    step(case, person)
                    print(f"     {time.monotonic() - begun:.1f} s", flush=True)
        except BaseException:
            for gateway in case.gateways:
                print(f"---- {gateway.name}\n{gateway.log[-6000:]}", file=sys.stderr)
            for request in case.model.requests[-12:]:
                print(f"---- {request.agent}: {request.text[:1500]!r} {request.results!r}", file=sys.stderr)
            if os.environ.get("KEEP"):
                shutil.copytree(work, os.environ["KEEP"], dirs_exist_ok=True)
            raise
        for gateway in (case.a, case.b, case.c):
            gateway.stop()
        until(10, "all have said goodbye", lambda: all(case.is_status(name, "offline") for name in "abc"))
        left = [str(path) for name in "abc" for path in (case.root / name / "inbox").glob("*.msg.json")]
        assert not left, f"not acknowledged: {left}"
        say("stopped gateways are offline, and nothing is left unacknowledged")
    print(f"all as promised: nanobot {VERSION}, amb-mailbox {agent_mailbox.__version__}, Python {sys.version.split()[0]}")


main()
