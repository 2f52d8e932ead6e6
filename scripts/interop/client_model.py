"""A model for real agents on loopback: Anthropic's messages, OpenAI's responses and chat completions, Gemini's generateContent.

It does what an agent does that is asked to see to its mail: it checks, reads the thread, replies, and begins a thread of its own, each
by a call of the tool that the client offers. It writes down what each tool result looked like to the model.
"""

import json
import re
import time

import completions
from completions import text_of

REPLY, NEWS = "four, says the stub", "a thread of my own"


def half_of(text):
    """Which half of a tool's result this is: the structured content as JSON, the readable text, or both."""
    before, brace, after = text.partition("{")
    try:
        json.loads(brace + after)
        has_structure = True
    except ValueError:
        has_structure = '"message_id":' in text or '"messages":' in text
    # Codex begins with how long it took.
    has_text = not has_structure or len(re.sub(r"Wall time: .*\nOutput:", "", before).strip()) > 0
    return {(True, False): "structured", (False, True): "text", (True, True): "both"}[has_structure, has_text]


class Conversation:
    """What was asked of the model, and what it saw."""

    def __init__(self, meanwhile):
        """`meanwhile` is done once, in the middle of the turn."""
        self.results, self.requests, self.offered, self.meanwhile = [], [], [], meanwhile

    def next_call(self, offered, results):
        """The next tool call, as the client's own name for it and its arguments; none where all is done."""
        self.results = results
        self.offered = sorted(name for name in offered if re.search("mailbox|peer|transcript", name))
        if len(results) == 2 and self.meanwhile:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
            # A notification that should not come would come now.
            time.sleep(1.5)
        # Clients put their own prefix before a tool's name.
        found = {name.rsplit("__", 1)[-1].removeprefix("mcp_mailbox_"): name for name in offered}
        steps = ("mailbox_check", "mailbox_read", "mailbox_send", "mailbox_send")
        if len(results) >= len(steps) or steps[len(results)] not in found:
            return None
        everything = "\n".join(results)
        session = re.search(r'session_id[^0-9a-f]{1,8}([0-9a-f-]{36})', everything) or re.search(r"([0-9a-f]{8}-[0-9a-f-]{27})", everything)
        message = re.search(r"(msg_\w+)", everything)
        arguments = (
            {},
            {"session_id": session and session.group(1)},
            {"to": "ben", "content": REPLY, "reply_to": message and message.group(1)},
            {"to": "ben", "content": NEWS, "subject": "news"},
        )[len(results)]
        return found[steps[len(results)]], arguments


def anthropic(conversation, request):
    offered = [tool["name"] for tool in request.get("tools", [])]
    parts = [part for message in request["messages"] if isinstance(message["content"], list) for part in message["content"]]
    told = [part for part in parts if part.get("type") == "tool_result"]
    results = [text_of(part.get("content")) for part in told if part["tool_use_id"].startswith("toolu_")]
    # Claude Code shows a model the names of tools first, and what they take when it asks, but for those that ask to be there.
    is_asked = len(told) > len(results)
    is_there = any(name.endswith("mailbox_check") for name in offered)
    if "ToolSearch" in offered and not is_asked and not is_there:
        wanted = ",".join(f"mcp__mailbox__{name}" for name in ("mailbox_check", "mailbox_read", "mailbox_send"))
        call, kind = ("ToolSearch", {"query": f"select:{wanted}"}), "search"
    else:
        call, kind = (conversation.next_call(offered, results) if offered else None), "toolu"
    usage = {"input_tokens": 1, "output_tokens": 1}
    begin = {"id": "msg_stub", "type": "message", "role": "assistant", "model": request["model"], "content": [], "usage": usage}
    yield "message_start", {"message": {**begin, "stop_reason": None, "stop_sequence": None}}
    if call:
        block = {"type": "tool_use", "id": f"{kind}_{len(results)}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "stub is done"}
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    yield "message_delta", {"delta": {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}, "usage": usage}
    yield "message_stop", {}


def openai(conversation, request):
    spaces = {}
    for tool in request.get("tools", []):
        for one in tool.get("tools", [tool]):
            if "name" in one:
                spaces[one["name"]] = tool["name"] if tool.get("type") == "namespace" else None
    results = [text_of(item.get("output")) for item in request["input"] if item.get("type") == "function_call_output"]
    call = conversation.next_call(list(spaces), results)
    if call:
        item = {"type": "function_call", "call_id": f"call_{len(results)}", "name": call[0], "arguments": json.dumps(call[1])}
        if spaces[call[0]]:
            item["namespace"] = spaces[call[0]]
    else:
        item = {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "stub is done"}]}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": None, "output_tokens_details": None}
    yield "response.created", {"response": {"id": "r"}}
    yield "response.output_item.done", {"output_index": 0, "item": item}
    yield "response.completed", {"response": {"id": "r", "usage": usage, "output": [item]}}


def chat(conversation, request):
    """Chat completions, as nanobot speaks them."""
    offered = [tool["function"]["name"] for tool in request.get("tools", [])]
    results = [text_of(message.get("content")) for message in request["messages"] if message["role"] == "tool"]
    wanted = conversation.next_call(offered, results) if offered else None
    said = completions.call(*wanted, id=f"call_{len(results)}") if wanted else {"content": "stub is done"}
    return completions.completion(request, said)


def gemini(conversation, request):
    offered = [one["name"] for tool in request.get("tools", []) for one in tool.get("functionDeclarations", [])]
    parts = [part for content in request["contents"] for part in content.get("parts", [])]
    told = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    results = [response.get("output") or json.dumps(response) for response in told]
    call = conversation.next_call(offered, results) if offered else None
    part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": "stub is done"}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    answer = {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}], "usageMetadata": usage}
    return json.dumps(answer)


def serve(conversation):
    """Serves on a free port of loopback; returns the server and its address."""

    def answer(path, request):
        conversation.requests.append((path, request))
        if path.endswith("/messages"):
            events = anthropic(conversation, request)
        elif path.endswith("/responses"):
            events = openai(conversation, request)
        elif path.endswith("/chat/completions"):
            return chat(conversation, request)
        elif path.endswith(":streamGenerateContent"):
            return f"data: {gemini(conversation, request)}\n\n", "text/event-stream"
        elif path.endswith(":generateContent"):
            return gemini(conversation, request), "application/json"
        elif path.endswith("/count_tokens"):
            return json.dumps({"input_tokens": 1}), "application/json"
        else:
            return "{}", "application/json"
        body = "".join(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in events)
        return body, "text/event-stream"

    return completions.serve(answer)
