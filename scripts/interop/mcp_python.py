"""Two `amb mcp` processes, driven over stdio by the official Python client in every mode, on every office."""

import asyncio
import sys
import warnings

from mcp import Client, MCPDeprecationWarning, StdioServerParameters
from offices import AMB, OFFICES

# The older way to subscribe is called on purpose.
warnings.simplefilter("ignore", MCPDeprecationWarning)

TOOLS = {
    "mailbox_check", "mailbox_read", "mailbox_send", "mailbox_wait", "mailbox_task", "mailbox_connect", "mailbox_approve",
    "list_peers", "send_to_peer", "transcript_recent",
    "transcript_append",
}  # fmt: skip
MODES = ("auto", "legacy", "2026-07-28")


class Agent:
    """One agent's client. It validates structured results against the tools' schemas."""

    def __init__(self, client):
        self.client, self.called = client, set()

    async def call(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, f"{tool}: {result.content[0].text}"
        assert result.content[0].text and result.structured_content is not None, tool
        self.called.add(tool)
        return result.structured_content

    async def fails(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, f"{tool} should have failed: {result}"
        self.called.add(tool)
        return result.content[0].text


def client(office, agent, mode, handler=None):
    started = StdioServerParameters(command=AMB, args=office.arguments(agent, "mcp"), env=office.environment(agent))
    return Client(started, mode=mode, message_handler=handler, read_timeout_seconds=60)


async def connect(office, alice, bob):
    if not office.connects:
        for refused in (
            await alice.fails("mailbox_connect", target_agent_name="bob"),
            await bob.fails("mailbox_approve", code="XC-992"),
        ):
            assert "allow_from" in refused, refused
        return
    refused = await alice.fails("mailbox_send", to="bob", subject="Plan", content="too early")
    assert "mailbox_connect" in refused, refused
    asked = await alice.call("mailbox_connect", target_agent_name="bob", message="hello")
    inbox = await bob.call("mailbox_check")
    assert inbox["pending_connections"][0]["from_agent_name"] == "alice", inbox
    connected = await bob.call("mailbox_approve", code=asked["verification_code"])
    assert connected["connected_agent_name"] == "alice", connected
    told = await alice.call("mailbox_wait", timeout_seconds=30)
    assert told["timed_out"] is False, told


async def talk(alice, bob):
    peers = await alice.call("list_peers")
    assert [peer["agent_id"] for peer in peers["peers"] if peer["reachable"]] == ["bob"], peers
    sent = await alice.call("mailbox_send", to="bob", subject="Plan", content="Hello Bob")
    inbox = await bob.call("mailbox_check")
    assert inbox["unread"] == 1 and inbox["sessions"][0]["session_id"] == sent["session_id"], inbox
    again = await bob.call("mailbox_check")
    assert again["unread"] == 1 and again["sessions"][0]["recent_messages"] == [], again
    read = await bob.call("mailbox_read", session_id=sent["session_id"])
    assert read["messages"][0]["content"] == "Hello Bob", read

    # The reply ends the other side's wait, whichever of the two begins first.
    waits = asyncio.create_task(alice.call("mailbox_wait", timeout_seconds=50))
    await bob.call(
        "mailbox_send", to="alice", subject="Plan", content="Hello Alice", session_id=sent["session_id"], reply_to=sent["message_id"]
    )
    told = await waits
    assert [message["content"] for message in told["messages"]] == ["Hello Alice"], told
    assert told["messages"][0]["session_id"] == sent["session_id"], told
    await alice.call("mailbox_read", session_id=sent["session_id"], limit=1)
    quiet = await alice.call("mailbox_wait", timeout_seconds=0)
    assert quiet["timed_out"] is True, quiet

    note = await alice.call("send_to_peer", to="bob", message="ready", correlation_id="7a3b2f00-0000-4000-8000-000000000001")
    assert len(note["delivered_to"]) == 1 and note["unreachable_reasons"] == [], note
    ghost = await alice.call("send_to_peer", to="ghost-agent", message="anyone?")
    assert ghost["delivered_to"] == [] and "ghost-agent" in ghost["unreachable_reasons"][0], ghost


async def work(alice, bob):
    sent = await alice.call("mailbox_send", to="bob", subject="Tests", content="Run them", kind="task", priority="high")
    task = sent["task"]["id"]
    assert sent["task"]["state"] == "pending", sent
    listed = await bob.call("mailbox_task", action="list")
    assert task in [item["id"] for item in listed["tasks"]], listed
    for action, state in (("accept", "accepted"), ("working", "working"), ("done", "completed")):
        moved = await bob.call("mailbox_task", action=action, task_id=task, note="on it")
        assert moved["tasks"][0]["state"] == state, moved
    ended = await bob.fails("mailbox_task", action="accept", task_id=task)
    assert "illegal_move" in ended, ended
    updates = await alice.call("mailbox_check", unread_only=True)
    told = [message for session in updates["sessions"] for message in session["recent_messages"] if message.get("task_id") == task]
    assert {message["task_state"] for message in told} == {"accepted", "working", "completed"}, updates


async def resources(alice, bob, heard):
    listed = await alice.client.list_resources()
    assert [resource.uri for resource in listed.resources] == ["mailbox://inbox"], listed
    templates = await alice.client.list_resource_templates()
    assert templates.resource_templates[0].uri_template == "mailbox://sessions/{session_id}", templates
    read = await alice.client.read_resource("mailbox://inbox")
    assert "thread" in read.contents[0].text, read
    if alice.client.protocol_version >= "2026-07-28":
        async with alice.client.listen(resource_subscriptions=["mailbox://inbox"]) as events:
            await bob.call("mailbox_send", to="alice", subject="Push", content="ding")
            event = await asyncio.wait_for(anext(aiter(events)), 30)
            assert event.uri == "mailbox://inbox", event
    else:
        await alice.client.subscribe_resource("mailbox://inbox")
        await bob.call("mailbox_send", to="alice", subject="Push", content="ding")
        assert await asyncio.wait_for(heard.get(), 30) == "mailbox://inbox"


async def drive(office, mode):
    heard = asyncio.Queue(100)

    async def handler(message):
        uri = getattr(getattr(message, "params", None), "uri", None)
        if uri is not None:
            heard.put_nowait(str(uri))

    async with client(office, "alice", mode, handler) as one, client(office, "bob", mode) as other:
        alice, bob = Agent(one), Agent(other)
        listed = await one.list_tools()
        assert {tool.name for tool in listed.tools} == TOOLS, listed
        # A client that pins the protocol version skips discovery.
        assert one.server_info is None or one.server_info.name == "agent-mailbox", one.server_info
        await connect(office, alice, bob)
        await talk(alice, bob)
        await work(alice, bob)
        await resources(alice, bob, heard)
        said = await alice.call("transcript_recent", key="interop:chat", limit=5)
        assert [(line["sender"], line["content"]) for line in said["lines"]] == [("ann", "hello group")], said
        added = await alice.call("transcript_append", key="interop:chat", content="hello ann", message_id="m-2")
        assert added["appended"] is True, added
        said = await alice.call("transcript_recent", key="interop:chat", limit=5)
        assert said["lines"][-1]["content"] == "hello ann" and len(said["lines"]) == 2, said
        assert alice.called | bob.called == TOOLS, TOOLS - alice.called - bob.called
        print(f"ok   python {mode:11} {office.name:9} protocol {one.protocol_version}, every tool called", flush=True)


async def main():
    wanted = sys.argv[1:] or list(OFFICES)
    for kind in wanted:
        for mode in MODES:
            with OFFICES[kind](["alice", "bob"]) as office:
                office.record("interop:chat", "hello group")
                await drive(office, mode)


asyncio.run(main())
