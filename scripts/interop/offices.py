"""Throwaway offices for the interop scripts: a directory, and a server on a free port."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

AMB = os.environ["AMB"]


class Office:
    """An office, and how to start `amb mcp` for one of its agents."""

    def __init__(self, name, connects, home):
        self.name, self.connects, self.home = name, connects, home
        self.flags, self.keys = [], {}

    def environment(self, agent):
        # The caller's own mailbox settings must not leak in.
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("AMB_", "MAILBOX_"))}
        clean["HOME"] = clean["XDG_CONFIG_HOME"] = str(self.home)
        if agent in self.keys:
            clean["MAILBOX_API_KEY"] = self.keys[agent]
            clean["MAILBOX_SERVER_URL"] = self.flags[1]
        return clean

    def arguments(self, agent, *more):
        # At a server the environment alone is enough, as a client's configuration would have it.
        return [*more] if agent in self.keys else [*self.flags, "--as", agent, *more]

    def run(self, agent, *more):
        command = [AMB, *self.arguments(agent, *more)]
        done = subprocess.run(command, env=self.environment(agent), capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def record(self, key, said):
        """Appends a line to a group chat's transcript."""
        self.run("alice", "transcript", "append", key, said, "--role", "user", "--sender", "ann")


@contextlib.contextmanager
def directory(agents):
    with tempfile.TemporaryDirectory() as root:
        home = pathlib.Path(root, "home")
        home.mkdir()
        office = Office("directory", connects=False, home=home)
        office.flags = ["--dir", str(pathlib.Path(root, "mail")), "--layout", "nanobot"]
        for agent in agents:
            office.run(agent, "register", agent, "--description", f"{agent}, for interop")
        yield office


@contextlib.contextmanager
def server(agents):
    with tempfile.TemporaryDirectory() as root:
        home = pathlib.Path(root, "home")
        home.mkdir()
        office = Office("server", connects=True, home=home)
        port = free_port()
        office.flags = ["--server", f"http://127.0.0.1:{port}"]
        command = [AMB, "serve", "--listen", f"127.0.0.1:{port}", "--rate-limits", "off"]
        command += ["--database-url", f"sqlite:{pathlib.Path(root, 'mail.db')}"]
        log = pathlib.Path(root, "log").open("w+")
        process = subprocess.Popen(command, env=office.environment(None), stdout=log, stderr=log)
        try:
            until_up(f"http://127.0.0.1:{port}/docs", process, log)
            for agent in agents:
                body = json.dumps({"name": agent, "owner_contact": "interop@example.com"}).encode()
                request = urllib.request.Request(f"http://127.0.0.1:{port}/agents/register", body)
                request.add_header("content-type", "application/json")
                with urllib.request.urlopen(request, timeout=30) as answer:
                    office.keys[agent] = json.load(answer)["api_key"]
            yield office
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
            log.close()


def free_port():
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def until_up(url, process, log, patience=60):
    """Waits until the server responds with any status."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    log.seek(0)
    raise SystemExit(f"no answer from {url}\n{log.read()}")


OFFICES = {"directory": directory, "server": server}
