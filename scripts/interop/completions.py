"""OpenAI's chat completions on loopback, for models that play a part in a test: the form of an answer, and a server for it."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def text_of(content):
    """The text of a message's content, be it one text or a list of parts."""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


def call(name, arguments, id):
    """What a model says that calls a tool. Ids must be unique within a conversation."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"index": 0, "id": id, "type": "function", "function": function}]}


def completion(request, said):
    """The body and the media type of an answer, streamed where the request says so."""
    said, end = {"role": "assistant", **said}, "tool_calls" if "tool_calls" in said else "stop"
    base = {"id": "c", "created": int(time.time()), "model": request.get("model", "stub")}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    if not request.get("stream"):
        choice = {"index": 0, "message": said, "finish_reason": end}
        return json.dumps({**base, "object": "chat.completion", "choices": [choice], "usage": usage}), "application/json"
    deltas = [{"index": 0, "delta": said, "finish_reason": None}, {"index": 0, "delta": {}, "finish_reason": end}]
    chunks = [{**base, "object": "chat.completion.chunk", "choices": [delta]} for delta in deltas]
    chunks.append({**base, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n", "text/event-stream"


def serve(answer, port=0):
    """Serves on loopback, each request in a thread: `answer(path, request)` returns a body and its media type.

    Returns the server and its address.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            self.say(*answer(self.path.split("?")[0], request))

        def do_GET(self):
            self.say('{"data": [], "models": []}', "application/json")

        def say(self, body, kind):
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

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"
