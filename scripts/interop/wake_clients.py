"""The clients of interop-wake: Claude Code on its stream of JSON, Codex by its app server, both with a throwaway home."""

import base64
import json
import os
import pathlib
import queue
import signal
import socket
import struct
import subprocess
import threading
import time

AMB = os.environ["AMB"]


def clean(home):
    dropped = ("AMB_", "MAILBOX_", "XDG_", "CODEX_", "CLAUDE", "ANTHROPIC_", "OPENAI_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    return environment | {"HOME": str(home), "NO_COLOR": "1"}


def wait_for(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds} s in vain: {what}")
        time.sleep(0.01)


class Claude:
    """A session of Claude Code that runs while its input is open."""

    def __init__(self, home, project, office, agent, url, resume=None):
        project.mkdir(exist_ok=True)
        server = {"command": AMB, "args": [*office, "--as", agent, "mcp"], "env": {"AMB_LOG": "amb_mcp=debug,amb_wake=debug"}}
        config = project / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"mailbox": server}}))
        environment = clean(home) | {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "stub", "DISABLE_AUTOUPDATER": "1"}
        environment |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        command = ["claude", "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--mcp-config", str(config)]
        command += ["--strict-mcp-config", "--allowedTools", "mcp__mailbox,Bash(sleep:*)", *(["--resume", resume] if resume else [])]
        self.log = open(project / "claude.log", "a")
        self.process = subprocess.Popen(
            command, cwd=project, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.session, self.results = resume, 0
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        for line in self.process.stdout:
            self.log.write(line)
            said = json.loads(line)
            self.session = said.get("session_id", self.session)
            self.results += said.get("type") == "result"

    def say(self, text):
        """Runs a turn for a prompt of the user; returns when it has ended."""
        before = self.results
        message = {"type": "user", "message": {"role": "user", "content": text}}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        wait_for(lambda: self.results > before, f"a turn of Claude Code: {text}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()


class Codex:
    """A thread of Codex in its own daemon, which is how its terminal runs threads too."""

    def __init__(self, home, project, office, agent, url):
        project.mkdir(exist_ok=True)
        codex_home = home / ".codex"
        codex_home.mkdir(exist_ok=True)
        arguments = json.dumps([*office, "--as", agent, "mcp"])
        (codex_home / "config.toml").write_text(
            'model = "stub"\nmodel_provider = "stub"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
            f'[model_providers.stub]\nname = "stub"\nbase_url = "{url}/v1"\nwire_api = "responses"\nrequires_openai_auth = false\n'
            f'[mcp_servers.mailbox]\ncommand = "{AMB}"\nargs = {arguments}\ndefault_tools_approval_mode = "approve"\n'
            f'env = {{ CODEX_HOME = "{codex_home}", PATH = "{os.environ["PATH"]}" }}\n'
        )
        self.environment = clean(home) | {"CODEX_HOME": str(codex_home)}
        self.run("app-server", "daemon", "start")
        self.server = AppServer(codex_home / "app-server-control/app-server-control.sock")
        started = self.server.call("thread/start", {"cwd": str(project), "approvalPolicy": "never", "sandbox": "danger-full-access"})
        self.thread = started["thread"]["id"]

    def run(self, *arguments):
        done = subprocess.run(["codex", *arguments], env=self.environment, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise SystemExit(f"codex {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")

    def say(self, text):
        before = self.server.completed
        self.server.call("turn/start", {"threadId": self.thread, "input": [{"type": "text", "text": text}]})
        wait_for(lambda: self.server.completed > before, f"a turn of Codex: {text}")

    def kill(self):
        """The daemon and all that it started, with -9; what it was to be rung for has nobody to ring."""
        wanted = f"CODEX_HOME={self.environment['CODEX_HOME']}\0".encode()
        for pid in processes_with(wanted):
            os.kill(pid, signal.SIGKILL)

    def resume(self):
        """The same thread, in a new daemon."""
        self.run("app-server", "daemon", "start")
        self.server = AppServer(pathlib.Path(self.environment["CODEX_HOME"], "app-server-control/app-server-control.sock"))
        self.server.call("thread/resume", {"threadId": self.thread})

    def close(self):
        self.run("app-server", "daemon", "stop")


class AppServer:
    """A minimal WebSocket client over a Unix socket, for Codex' app server."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.path.realpath(path))
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.stream = self.socket.makefile("rb")
        while self.stream.readline().strip():
            pass
        self.answers, self.asked, self.completed, self.log = queue.Queue(), 0, 0, []
        threading.Thread(target=self.follow, daemon=True).start()
        client = {"name": "interop", "title": "interop", "version": "1"}
        self.call("initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}})
        self.send({"method": "initialized"})

    def send(self, message):
        data, mask = json.dumps(message).encode(), os.urandom(4)
        length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        self.socket.sendall(b"\x81" + length + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data)))

    def follow(self):
        text = b""
        while head := self.stream.read(2):
            length = head[1] & 0x7F
            if length > 125:
                length = int.from_bytes(self.stream.read(2 if length == 126 else 8), "big")
            data = self.stream.read(length)
            if head[0] & 0x0F in (0, 1):
                text += data
            if head[0] & 0x80 and head[0] & 0x0F in (0, 1):
                said, text = json.loads(text), b""
                self.log.append(said)
                self.completed += said.get("method") == "turn/completed"
                if "id" in said and "method" not in said:
                    self.answers.put(said)

    def call(self, method, params):
        self.asked += 1
        self.send({"id": self.asked, "method": method, "params": params})
        while True:
            answer = self.answers.get(timeout=30)
            if answer["id"] == self.asked:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]


def version(program):
    return subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip()


def processes_of(home):
    """Returns the running processes that were started with this home."""
    return processes_with(f"HOME={home}\0".encode())


def processes_with(variable):
    """Returns the processes with this in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and variable in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found
