"""What `amb init` writes is read by the real clients, and mail reaches their models: Qwen Code in its terminal interface by its
socket, opencode by the plugin, Copilot CLI and Gemini CLI by their hooks. The model is a stub on loopback, nobody types.

    wake_more.py [CLIENT...]     qwen, copilot, gemini, opencode; those that are not on the PATH are skipped
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request

import client_model
import wake_clients
import wake_model
from wake_clients import AMB, clean, wait_for


class World:
    """A home, an office, and an agent with a client that `amb init` has set up."""

    def __init__(self, client, *flags):
        # Sockets' paths are short.
        self.room = tempfile.TemporaryDirectory(prefix="w", dir="/tmp")
        self.home = pathlib.Path(self.room.name)
        self.project = self.home / "p"
        self.project.mkdir()
        subprocess.run(["git", "init", "--quiet", self.project], check=True)
        self.model = wake_model.Agent("cli")
        _, self.url = client_model.serve(self.model)
        self.environment = clean(self.home) | {"PATH": f"{pathlib.Path(AMB).parent}:{os.environ['PATH']}", "TERM": "xterm-256color"}
        for agent in ("cli", "boss"):
            self.amb(agent, "register", agent)
        self.amb("cli", "init", client, *flags)

    def amb(self, agent, *arguments):
        done = subprocess.run(
            [AMB, "--dir", self.home / "mail", "--as", agent, *arguments], cwd=self.project, env=self.environment, capture_output=True,
            text=True, timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def mail(self, subject):
        sent = json.loads(self.amb("boss", "send", "cli", "are you there?", "--subject", subject, "--json"))
        return sent["message_id"], time.monotonic()

    def status(self):
        return json.loads(self.amb("cli", "wake", "status", "--json"))["sessions"]

    def run(self, *command, **variables):
        done = subprocess.run(
            command, cwd=self.project, env=self.environment | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def terminal(self, *command, **variables):
        """Runs a command in a pseudo-terminal until the end of the test."""
        pid, end = pty.fork()
        if pid == 0:
            os.chdir(self.project)
            os.execvpe(command[0], command, self.environment | variables)
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))

        def follow():
            try:
                while os.read(end, 65536):
                    pass
            except OSError:
                pass

        threading.Thread(target=follow, daemon=True).start()

    def told(self):
        """Returns our lines in the model's input, without duplicates, in order."""
        lines = []
        for _, request in self.model.requests:
            for line in re.findall(r"Agent Mailbox: [^\"\\]*?(?:done|stop)\.", json.dumps(request)):
                if line not in lines:
                    lines.append(line)
        return lines

    def saw(self, id):
        """Returns whether one of our tools showed this mail to the model."""
        return any(id in result for result in self.model.results)

    def woken(self, since, id, what, seconds=60):
        """Returns the seconds until the model was notified of this mail."""
        wait_for(lambda: any(id in line for line in self.told()), what, seconds)
        return time.monotonic() - since

    def end(self):
        for pid in wake_clients.processes_of(self.home):
            os.kill(pid, signal.SIGKILL)
        self.room.cleanup()


def qwen(world):
    world.terminal("qwen", "--auth-type", "openai", "-m", "stub", "--openai-base-url", f"{world.url}/v1", "--openai-api-key", "stub", XDG_RUNTIME_DIR=str(world.home))
    wait_for(lambda: any(one["client"] == "qwen" for one in world.status()), "a session of Qwen Code", 90)
    time.sleep(5)  # It shows its interface; what comes before is queued.
    id, sent = world.mail("idle")
    wait = world.woken(sent, id, "Qwen Code is woken")
    wait_for(lambda: world.saw(id), "the model looks at its mail")
    # A receipt is best effort.
    receipt = next((one["receipt"] for one in world.status() if one["receipt"]), "none")
    return f"idle, in its terminal: told after {wait * 1000:.0f} ms, receipt {receipt}, and the model called our tools without a search"


def copilot(world):
    mine = {"COPILOT_OFFLINE": "true", "COPILOT_PROVIDER_BASE_URL": f"{world.url}/v1", "COPILOT_MODEL": "gpt-5-mini"}
    mine |= {"COPILOT_PROVIDER_API_KEY": "stub", "COPILOT_AUTO_UPDATE": "false"}
    first, _ = world.mail("before")
    # Told of at the start; what comes while the model works, after its tool; the mail is read, so the stop says nothing.
    world.model.meanwhile_once = lambda: world.mail("meanwhile")
    world.run("copilot", "-p", "Begin.", "--allow-tool", "mailbox", "--trust-folder", **mine)
    told = world.told()
    assert first in told[0] and "present step" in told[0], told
    assert any("2 unread" in line or "from boss" in line for line in told[1:]), told
    assert world.saw(first), world.model.results
    return "hooks of the project: " + kinds(told)


def gemini(world):
    mine = {"GEMINI_API_KEY": "stub", "GOOGLE_GEMINI_BASE_URL": world.url}
    settings = world.home / ".gemini/settings.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"security": {"auth": {"selectedType": "gemini-api-key"}}}))
    first, _ = world.mail("before")
    world.model.meanwhile_once = lambda: world.mail("meanwhile")
    world.run("gemini", "-p", "Begin.", "-m", "gemini-2.5-flash", "--skip-trust", **mine)
    told = world.told()
    assert any(first in line for line in told), told
    assert world.saw(first), world.model.results
    return "hooks: " + kinds(told)


def opencode(world):
    config = world.project / "opencode.json"
    settings = json.loads(config.read_text())
    options = {"baseURL": f"{world.url}/v1", "apiKey": "stub"}
    settings["provider"] = {"stub": {"npm": "@ai-sdk/openai-compatible", "name": "stub", "options": options, "models": {"stub": {"name": "stub"}}}}
    settings |= {"model": "stub/stub", "small_model": "stub/stub", "autoupdate": False, "share": "disabled"}
    config.write_text(json.dumps(settings))
    port = free_port()
    world.terminal("opencode", "serve", "--port", str(port), "--hostname", "127.0.0.1")

    def ask(path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=60))

    def is_up():
        try:
            return ask("/session") is not None
        except OSError:
            return False

    wait_for(is_up, "opencode serves", 180)
    session = ask("/session", {})
    ask(f"/session/{session['id']}/message", {"parts": [{"type": "text", "text": "Begin."}]})
    wait_for(lambda: world.model.doing is None, "its first turn", 60)
    time.sleep(1)
    id, sent = world.mail("idle")
    wait = world.woken(sent, id, "opencode is woken")
    wait_for(lambda: world.saw(id), "the model looks at its mail")
    return f"idle, by our plugin: told after {wait * 1000:.0f} ms, and the model looked at its mail"


def kinds(told):
    return "the model was told " + ", then ".join("in passing" if "present step" in line else "at the stop, and went on" for line in told)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


CASES = {
    "qwen": (qwen, "Qwen Code", []),
    "copilot": (copilot, "Copilot CLI", ["--scope", "project"]),
    "gemini": (gemini, "Gemini CLI", []),
    "opencode": (opencode, "opencode", ["--scope", "project"]),
}

failed = []
for name in sys.argv[1:] or CASES:
    run, title, flags = CASES[name]
    if shutil.which(name) is None:
        print(f"skip     {title}: no {name} here")
        continue
    world = World(name, *flags)
    try:
        version = (wake_clients.version(name).splitlines() or ["?"])[0]
        print(f"{name:8} {title} {version}: {run(world)}", flush=True)
    except (AssertionError, SystemExit) as error:
        failed.append(name)
        print(f"WRONG    {title}: {error}\n  told: {world.told()}\n  read: {world.model.read}, calls {world.model.calls}", flush=True)
    finally:
        world.end()
sys.exit(f"failed: {failed}" if failed else 0)
