"""A model that sees to its mail whenever a turn begins: it checks, reads what is new, answers what it is told to answer, and stops."""

import json
import re
import threading
import time

import client_model

RING = "Agent Mailbox: "


def document(result):
    """The structured half of a tool's result; Codex puts the time that it took before it."""
    _, brace, rest = result.partition("{")
    try:
        # A hook's output may follow it.
        return json.JSONDecoder().raw_decode(brace + rest)[0]
    except ValueError:
        return {}


class Agent(client_model.Conversation):
    def __init__(self, name):
        super().__init__(None)
        self.name, self.lock = name, threading.RLock()
        # When each turn's first request came, and how many requests there were in all.
        self.turns, self.calls, self.empty, self.rung_mid_turn = [], 0, 0, 0
        self.answered, self.read = 0, []
        # To whom it answers, what a user asks it to do first, and for how long it runs a command of its own first.
        self.answers_to, self.errand, self.slow = set(), None, 0
        # Done once, when the model has looked at its mail for the first time.
        self.meanwhile_once = None
        self.reset()

    def reset(self):
        with self.lock:
            self.doing, self.queue = None, []

    def next_call(self, offered, results):
        # Each client puts its own prefix before a tool's name: mcp__mailbox__, mcp_mailbox_, mailbox-, mailbox_.
        found = {re.sub(r"^(mcp_+)?mailbox(__|-|_)(?=mailbox_)", "", name): name for name in offered}
        if "mailbox_check" not in found:
            return None
        arrived = time.monotonic()
        with self.lock:
            self.calls += 1
            self.offered, self.results = offered, results
            if self.doing is None:
                self.turns.append(arrived)
                self.rings_before = self.rings()
            call = self.decide(results)
        if call and call[0] == "sleep":
            # A command that takes its time, in the client's own shell.
            call = ("Bash", {"command": call[1], "description": "wait"}) if "Bash" in found else ("exec_command", {"cmd": call[1]})
        return call and (found[call[0]], call[1])

    def rings(self):
        """Returns the rings among the model's input so far."""
        asked = (request for _, request in reversed(self.requests) if "mailbox_check" in json.dumps(request.get("tools", [])))
        return json.dumps(next(asked)).count(RING)

    def decide(self, results):
        if self.doing is None and self.errand:
            errand, self.errand, self.doing = self.errand, None, "errand"
            return "mailbox_send", errand
        if self.doing is None and self.slow:
            seconds, self.slow, self.doing = self.slow, 0, "slow"
            return "sleep", f"sleep {seconds}"
        if self.doing == "errand":
            self.doing = None
            return None
        if self.doing == "slow":
            # Notified between two tool calls of one turn.
            self.rung_mid_turn += self.rings() > self.rings_before
            self.doing = None
        if self.doing is None:
            self.doing = "check"
            return "mailbox_check", {"unread_only": True}
        if self.doing == "check" and self.meanwhile_once:
            meanwhile, self.meanwhile_once = self.meanwhile_once, None
            meanwhile()
        if self.doing == "check":
            sessions = document(results[-1]).get("sessions", [])
            for session in sessions:
                mails = [mail for mail in session["recent_messages"] if mail["sender_name"] != self.name]
                if mails:
                    self.queue.append((session["session_id"], mails[-1]))
                    self.read += [mail["id"] for mail in mails]
            self.empty += not self.queue
        if self.doing == "read":
            session, mail = self.queue.pop(0)
            if mail["sender_name"] in self.answers_to:
                self.doing, self.answered = "send", self.answered + 1
                return "mailbox_send", {"to": mail["sender_name"], "content": f"answer {self.answered} of {self.name}", "reply_to": mail["id"]}
        if self.queue:
            self.doing = "read"
            return "mailbox_read", {"session_id": self.queue[0][0]}
        self.doing = None
        return None
