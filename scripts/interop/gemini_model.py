"""A stand-in for Gemini's model: port and log on the command line. The last mail in the prompt says what it does: `slow` takes five
seconds, `touch PATH` asks for a shell command first, all else is answered at once. One line a call in the log: the mail's id, how many
answers of its own it was shown, and whether a history was handed over."""
import http.server, json, re, sys, time

log = sys.argv[2]


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
        parts = [(turn.get("role"), part) for turn in body["contents"] for part in turn["parts"]]
        at = max((at for at, (_, part) in enumerate(parts) if "New message from" in part.get("text", "")), default=None)
        prompt = parts[at][1]["text"] if at is not None else ""
        # Without a history that was handed over.
        news = prompt.rpartition("New message from")[2]
        mail = (re.findall(r' id="([^"]+)"', prompt) or ["none"])[-1]
        shown = sum("answer to " in part.get("text", "") for role, part in parts if role == "model")
        with open(log, "a") as file:
            file.write(f"{mail} shown={shown} handed={'is lost' in prompt}\n")
        tool = re.search(r"touch (\S+)", news)
        if "slow" in news:
            time.sleep(5)
        if tool and not any("functionResponse" in part for _, part in parts[at:]):
            part = {"functionCall": {"name": "run_shell_command", "args": {"command": f"touch {tool[1]}"}}}
        else:
            part = {"text": f"answer to {mail}"}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        answer = json.dumps({"candidates": [candidate], "usageMetadata": usage})
        is_stream = "stream" in self.path
        data = (f"data: {answer}\r\n\r\n" if is_stream else answer).encode()
        try:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except BrokenPipeError:
            pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Model).serve_forever()
