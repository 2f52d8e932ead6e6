"""A model for scripts/interop-openclaw: speaks OpenAI's chat completions, answers by the mail's id, writes down each call.

    openclaw_model.py PORT LOG

A question with the word "slow" in it is answered after some seconds.
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


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = [text_of(m) for m in request["messages"] if m["role"] == "user"]
        found = [re.search(r'<mail-\S+ [^>]*\bid="([^"]+)"', text) for text in asked]
        marked = [(match.group(1), text) for match, text in zip(found, asked) if match]
        mail, text = marked[-1] if marked else ("none", "")
        with open(LOG, "a") as log:
            log.write(f"{mail}\n")
        if "slow question" in text:
            time.sleep(8)
        self.answer(f"stub answer to {mail}", request.get("stream"))

    def answer(self, text, stream):
        base = {"id": "c", "created": int(time.time()), "model": "stub-1"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not stream:
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            body = json.dumps({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
            kind = "application/json"
        else:
            deltas = [({"role": "assistant", "content": text}, None), ({}, "stop")]
            chunks = [
                {**base, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": d, "finish_reason": end}]}
                for d, end in deltas
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
