"""Both npm SDKs in each of their modes, and the inspector's CLI, on every office."""

import json
import os
import pathlib
import subprocess
import sys

from offices import AMB, OFFICES

HOME = pathlib.Path(__file__).resolve().parents[2] / "target/interop/npm"
CLIENTS = ("sdk 1", "client 2 legacy", "client 2 auto", "client 2 2026-07-28")


def seats(office):
    def seat(agent):
        return {"command": AMB, "args": office.arguments(agent, "mcp"), "env": office.environment(agent)}

    known = {"name": office.name, "connects": office.connects}
    return {**known, "seats": {agent: seat(agent) for agent in ("alice", "bob")}}


def drive_sdks(kind):
    for client in CLIENTS:
        with OFFICES[kind](["alice", "bob"]) as office:
            office.record("interop:chat", "hello group")
            environment = {**os.environ, "SEATS": json.dumps(seats(office))}
            subprocess.run(["node", "mcp_npm.mjs", client], cwd=HOME, env=environment, check=True, timeout=180)


def inspector(office, agent, *method):
    # A wrapper that sets the seat's environment: the inspector passes its own on only in part.
    environment = office.environment(agent)
    seat = pathlib.Path(office.home, f"seat-{agent}")
    wanted = {key: environment[key] for key in ("HOME", "XDG_CONFIG_HOME", "MAILBOX_API_KEY", "MAILBOX_SERVER_URL") if key in environment}
    exports = "".join(f"export {key}='{value}'\n" for key, value in wanted.items())
    words = " ".join(f"'{word}'" for word in office.arguments(agent, "mcp"))
    seat.write_text(f"#!/bin/sh\n{exports}exec '{AMB}' {words}\n")
    seat.chmod(0o755)
    command = ["node_modules/.bin/mcp-inspector", "--cli", str(seat), *method, "--format", "json"]
    own_home = {**os.environ, "HOME": str(office.home)}
    done = subprocess.run(command, cwd=HOME, env=own_home, capture_output=True, text=True, timeout=120)
    # 5 says that the tool itself answered with an error.
    if done.returncode not in (0, 5):
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout), done.stderr


# Tools that the inspector called in the present office.
CALLED = set()


def call(office, agent, tool, **arguments):
    CALLED.add(tool)
    pairs = [word for key, value in arguments.items() for word in ("--tool-arg", f"{key}={value}")]
    answer, _ = inspector(office, agent, "--method", "tools/call", "--tool-name", tool, *pairs)
    result = answer.get("result", answer)
    return result.get("isError", False), result


def ok(office, agent, tool, **arguments):
    failed, result = call(office, agent, tool, **arguments)
    assert not failed, (tool, result)
    return result["structuredContent"]


def drive_inspector(kind):
    with OFFICES[kind](["alice", "bob"]) as office:
        CALLED.clear()
        listed, complaints = inspector(office, "alice", "--method", "tools/list", "--strict")
        tools = listed.get("result", listed)["tools"]
        assert len(tools) == 11, listed
        assert not complaints.strip(), f"inspector --strict said: {complaints.strip()}"
        if office.connects:
            code = ok(office, "alice", "mailbox_connect", target_agent_name="bob")["verification_code"]
            ok(office, "bob", "mailbox_approve", code=code)
        else:
            assert call(office, "alice", "mailbox_connect", target_agent_name="bob")[0]
            assert call(office, "bob", "mailbox_approve", code="XC-992")[0]
        sent = ok(office, "alice", "mailbox_send", to="bob", subject="Plan", content="Hello Bob")
        assert ok(office, "bob", "mailbox_check")["unread"] == 1
        assert ok(office, "bob", "mailbox_wait", timeout_seconds=5)["timed_out"] is False
        assert ok(office, "bob", "mailbox_read", session_id=sent["session_id"], limit=5)["messages"][0]["content"] == "Hello Bob"
        ok(office, "alice", "list_peers")
        ok(office, "alice", "send_to_peer", to="bob", message="ready")
        task = ok(office, "alice", "mailbox_send", to="bob", subject="Tests", content="Run them", kind="task")["task"]["id"]
        assert ok(office, "bob", "mailbox_task", action="done", task_id=task, note="green")["tasks"][0]["state"] == "completed"
        office.record("interop:chat", "hello group")
        assert ok(office, "alice", "transcript_recent", key="interop:chat")["lines"][0]["content"] == "hello group"
        assert ok(office, "alice", "transcript_append", key="interop:chat", content="hi", message_id="m-2")["appended"] is True
        assert CALLED == {tool["name"] for tool in tools}, CALLED
        print(f"ok   inspector --strict      {office.name:9} every tool called", flush=True)


for kind in sys.argv[1:] or list(OFFICES):
    drive_sdks(kind)
    drive_inspector(kind)
