"""Real gateways of nanobot in throwaway homes, people who talk with them, and a group chat that does not tell bots of each other."""

import contextlib
import importlib.util
import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import threading
import time

from websockets.sync.client import connect


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def until(seconds, what, check):
    """Polls until the result is truthy, and returns it."""
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.05)
    return found


def built_in_skills():
    package = pathlib.Path(importlib.util.find_spec("nanobot").origin).parent
    return sorted(skill.parent.name for skill in package.glob("skills/*/SKILL.md"))


CLOSED = 9  # a port at which nobody listens


class Gateway:
    """`nanobot gateway` for one agent."""

    def __init__(self, nanobot, work, name, model, root, *, agent=None, version, chat=None, **mailbox):
        self.name, self._nanobot, self._version = name, nanobot, version
        self.home = pathlib.Path(work, name)
        self.port, self._process = free_port(), None
        (self.home / ".nanobot").mkdir(parents=True)
        defaults = {"provider": "custom", "model": name, "maxTokens": 512, "contextWindowTokens": 200000, "dream": {"enabled": False}}
        # nanobot reads the descriptions of its own skills anew in each turn, which is most of what a turn costs it here.
        if not os.environ.get("SKILLS"):
            defaults["disabledSkills"] = built_in_skills()
        section = {"enabled": True, "agentId": agent or name, "description": f"{name} of the test", "mailboxesRoot": str(root), **mailbox}
        socket_section = {"enabled": True, "port": self.port, "websocketRequiresToken": False, "allowFrom": ["*"], "streaming": False}
        channels = {"sendProgress": False, "sendToolHints": False, "websocket": socket_section, "mailbox": section}
        if chat is not None:
            # One that streams its answers and one that does not.
            channels["groupchat"] = {"enabled": True, "port": chat.port, "allowFrom": ["*"], "streaming": name == "b" and not version.startswith("0.2")}
        config = {
            "providers": {"custom": {"apiKey": "EMPTY", "apiBase": f"{model.url}/v1"}},
            "agents": {"defaults": defaults},
            "channels": channels,
            "gateway": {"host": "127.0.0.1", "port": free_port(), "heartbeat": {"enabled": False}},
        }
        (self.home / ".nanobot/config.json").write_text(json.dumps(config))

    def _environment(self):
        mine = ("AMB_", "MAILBOX_", "NANOBOT_", "OPENAI_", "PYTHONPATH")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(mine) and not key.lower().endswith("_proxy")}
        # Nothing outside is reached: nanobot would look there for its tokenizer's tables, again and again where there is no network.
        outside = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), f"http://127.0.0.1:{CLOSED}")
        return {**kept, **outside, "no_proxy": "127.0.0.1,localhost", "HOME": str(self.home), "NO_COLOR": "1"}

    def run(self, *arguments, program=None):
        """Runs another command in this home; returns its output."""
        command = [program or self._nanobot, *arguments]
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    @property
    def log(self):
        path = self.home / "gateway.log"
        return path.read_text() if path.exists() else ""

    def start(self):
        command = [self._nanobot, "gateway", *([] if self._version.startswith("0.2") else ["--foreground"])]
        with (self.home / "gateway.log").open("a") as log:
            self._process = subprocess.Popen(command, env=self._environment(), stdout=log, stderr=log, cwd=self.home)
        return self

    def _answers(self):
        assert self._process.poll() is None, f"{self.name} ended:\n{self.log[-3000:]}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True

    def ready(self):
        until(90, f"{self.name} listens", self._answers)
        return self

    def stop(self):
        """Stops it with SIGTERM, as a service manager does."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Person:
    """A person at the websocket channel of a gateway."""

    def __init__(self, gateway):
        self._socket = connect(f"ws://127.0.0.1:{gateway.port}/?client_id=person", max_size=None)
        self.heard = []
        self._news = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        with contextlib.suppress(Exception):
            for raw in self._socket:
                event = json.loads(raw)
                if event.get("event") == "message" and event.get("text"):
                    self._news.put(event["text"])

    def say(self, text):
        self._socket.send(text)

    def hears(self, part, seconds=60):
        """Returns the next message that contains this text."""
        end = time.monotonic() + seconds
        while True:
            try:
                text = self._news.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the person did not hear {part!r}, but {self.heard}") from None
            self.heard.append(text)
            if part in text:
                return text


class GroupChat:
    """A chat service: bots receive the messages of people, but not those of other bots."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._bots, self.said = [], queue.Queue()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                bot, _ = self._listener.accept()
                self._bots.append(bot)
                threading.Thread(target=self._read, args=(bot,), daemon=True).start()

    def _read(self, bot):
        with contextlib.suppress(OSError), bot.makefile() as lines:
            for line in lines:
                self.said.put(json.loads(line)["text"])
        self._bots.remove(bot)

    def say(self, sender, text, id, topic=None):
        """Posts a message of a person; returns the bots' answers."""
        until(30, "both bots are in the group", lambda: len(self._bots) == 2)
        line = json.dumps({"sender": sender, "text": text, "id": id, "topic": topic}) + "\n"
        for bot in self._bots:
            bot.sendall(line.encode())
        return sorted(self.said.get(timeout=60) for _ in self._bots)
