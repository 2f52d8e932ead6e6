"""What the steps of nanobot_run.py share: the agents a, b and c on one directory, and a stand-in model for all of them."""

import importlib.metadata
import json
import pathlib
import sys

import agent_mailbox
from nanobot_gateway import Gateway, GroupChat
from nanobot_model import Model

VERSION = importlib.metadata.version("nanobot-ai")
NANOBOT = str(pathlib.Path(sys.executable).parent / "nanobot")
# nanobot before 0.3 has no hook for the context of a turn.
HAS_CONTEXT = not VERSION.startswith("0.2")


class Case:
    """The agents a, b and c on one directory."""

    def __init__(self, stack, work):
        self.work, self.root = work, pathlib.Path(work, "mailboxes")
        self.model = Model()
        self.chat = GroupChat()
        stack.callback(self.stop)
        self.gateways = []
        self.probe = self.mailbox("probe")
        self.probe.register()
        self.transcripts = pathlib.Path(work, "transcripts")
        recorded = {"transcripts": True, "transcriptsRoot": str(self.transcripts), "chat": self.chat}
        self.a, self.b, self.c = self.gateway("a", **recorded), self.gateway("b", maxConcurrentTasks=1, **recorded), self.gateway("c")

    def gateway(self, name, **more):
        made = Gateway(NANOBOT, self.work, name, self.model, self.root, version=VERSION, **more)
        self.gateways.append(made)
        return made

    def stop(self):
        for gateway in self.gateways:
            gateway.kill()

    def mailbox(self, agent):
        return agent_mailbox.Mailbox.directory(self.root, agent)

    def is_status(self, agent, status):
        found = self.mailbox("watcher").agent(agent)
        return found is not None and found["status"] == status

    def asks(self, agent, marker):
        """Returns how many requests of this agent contain this marker."""
        return sum(1 for request in self.model.requests if request.agent == agent and marker in request.text)

    def updates(self, agent, text):
        """Returns the states of the task with this text in the order of the updates to `agent`."""
        told = [json.loads(path.read_text()) for path in sorted((self.root / agent).glob("*/*.msg.json"))]
        box = self.mailbox(agent)
        tasks = {task["id"] for task in box.tasks(owned=True) if text in str(box.message(task["message_id"])["parts"])}
        return [mail["task"]["state"] for mail in told if mail["type"] == "task_update" and mail["task"]["id"] in tasks]


def say(text):
    print(f"ok   {text}", flush=True)
