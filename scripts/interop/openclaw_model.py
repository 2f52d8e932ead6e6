"""A model for the scripts with a real OpenClaw: speaks OpenAI's chat completions, answers by the mail's id, writes down each call.

    openclaw_model.py PORT LOG

A "slow question" is answered after some seconds, a "very slow question" after 20; one that "needs no answer" and a "task to
complete" with the lines that tell the bridge so. A question that says "call the tool NAME" gets that call, and what the tool
answered is repeated. A turn that tells of a request for a connection is written down as request:NAME.
"""

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOG = sys.argv[2]


def text_of(message):
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def newest(messages):
    """The newest question that is no mail (what a mail asks for is not done) and nothing that OpenClaw itself added, and what
    came after it."""
    for at in range(len(messages) - 1, -1, -1):
        text = text_of(messages[at])
        if messages[at]["role"] == "user" and not text.startswith("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"):
            return ("" if re.search(r"<mail-\S+ ", text) else text), messages[at + 1 :]
    return "", []


def subject_of(text):
    """What a message of the user's is about: a mail by its id, or a request for a connection by who asks."""
    if found := re.search(r'<mail-\S+ [^>]*\bid="([^"]+)"', text):
        return found.group(1), text
    if found := re.search(r"\[Mailbox\] (\S+) asks to be connected", text):
        # A stranger's words would be noticed in the log.
        return f"request:{found.group(1)}{' IGNORE' if 'IGNORE' in text else ''}", text
    return None


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = [text_of(m) for m in request["messages"] if m["role"] == "user"]
        mail, text = next(filter(None, map(subject_of, reversed(asked))), ("none", ""))
        with open(LOG, "a") as log:
            log.write(f"{mail}\n")
        if "very slow question" in text:
            time.sleep(20)
        elif "slow question" in text:
            time.sleep(8)
        question, since = newest(request["messages"])
        wanted = re.search(r"call the tool `?(\w+)", question)
        told = [text_of(message) for message in since if message["role"] == "tool"]
        if wanted and told:
            self.answer({"content": f"the tool said: {told[-1]}"}, request.get("stream"))
        elif wanted:
            known = [tool["function"]["name"] for tool in request.get("tools", [])]
            names = [name for name in known if name == wanted.group(1) or name.endswith("__" + wanted.group(1))]
            if not names:
                return self.answer({"content": f"no tool {wanted.group(1)} among {known}"}, request.get("stream"))
            call = {"index": 0, "id": f"call_{int(time.time() * 1000)}", "type": "function"}
            call["function"] = {"name": names[0], "arguments": "{}"}
            self.answer({"content": None, "tool_calls": [call]}, request.get("stream"))
        elif "question that needs no answer" in text:
            self.answer({"content": "[mailbox: no answer]"}, request.get("stream"))
        elif "task to complete" in text:
            self.answer({"content": f"[mailbox: completed]\nstub result of {mail}"}, request.get("stream"))
        else:
            self.answer({"content": f"stub answer to {mail}"}, request.get("stream"))

    def answer(self, said, stream):
        end = "tool_calls" if "tool_calls" in said else "stop"
        base = {"id": "c", "created": int(time.time()), "model": "stub-1"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not stream:
            choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": end}
            body = json.dumps({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
            kind = "application/json"
        else:
            deltas = [({"role": "assistant", **said}, None), ({}, end)]
            chunks = [
                {**base, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": d, "finish_reason": over}]}
                for d, over in deltas
            ]
            chunks.append({**base, "object": "chat.completion.chunk", "choices": [], "usage": usage})
            body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
            kind = "text/event-stream"
        data = body.encode()
        try:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            pass  # whoever asked has gone

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Model).serve_forever()
