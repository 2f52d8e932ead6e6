"""A model for real nanobots on loopback: what each agent says follows from markers in what it is told, and each request is kept."""

import itertools
import re
import threading
import time
from dataclasses import dataclass, field

import completions
from completions import text_of


@dataclass
class Request:
    """One request to the model."""

    agent: str
    """The agent: each gateway is configured with a model of its agent's name."""
    at: float
    text: str
    """The newest message of the user, with nanobot's additions."""
    results: list = field(default_factory=list)
    """The results of the tools since then."""

    @property
    def mail(self):
        """The attributes of the mail in the request."""
        found = re.search(r"<mail-\S+ ([^>]*)>", self.text)
        return dict(re.findall(r'(\w+)="([^"]*)"', found.group(1))) if found else {}

    @property
    def body(self):
        """The text of the mail."""
        found = re.search(r"<mail-(\S+) [^>]*>\n(?:Subject: [^\n]*\n\n)?(.*?)\n</mail-\1>", self.text, re.S)
        return found.group(2) if found else ""


class Model:
    """The model of all agents of a test."""

    def __init__(self):
        self.requests = []
        self._rules = []
        self._changed = threading.Condition()
        self._ids = itertools.count()
        self._server, self.url = completions.serve(self._answer)

    def when(self, agent, marker, said):
        """Has the agent say this where the marker stands in what it is told: a text, or what a function of the request returns.

        Where the function returns nothing, the next rule counts.
        """
        self._rules.insert(0, (agent, marker, said))

    def call(self, name, **arguments):
        """A rule that calls a tool at the beginning of the turn."""
        return lambda request: None if request.results else self.calls(name, **arguments)

    def calls(self, name, **arguments):
        """Returns the model's message that calls a tool."""
        return completions.call(name, arguments, id=f"call_{next(self._ids)}")

    def send(self, to, content, **more):
        """A rule that gives another agent a task."""
        return self.call("mailbox_send", to=to, content=content, kind="task", **more)

    def wait(self, predicate, what, seconds=60):
        """Returns the first request that matches."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                for request in self.requests:
                    if predicate(request):
                        return request
                if not self._changed.wait(max(0.0, end - time.monotonic())):
                    raise AssertionError(f"no request: {what}")

    def _answer(self, _path, asked):
        messages = asked.get("messages", [])
        last = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=-1)
        results = [text_of(message.get("content")) for message in messages[last + 1 :] if message["role"] == "tool"]
        text = text_of(messages[last].get("content")) if last >= 0 else ""
        request = Request(asked["model"], time.time(), text, results)
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        return completions.completion(asked, self._said(request))

    def _said(self, request):
        for agent, marker, said in self._rules:
            if agent == request.agent and marker in request.text:
                said = said(request) if callable(said) else said
                if said:
                    return {"content": said} if isinstance(said, str) else said
        if request.results:
            return {"content": f"{request.agent} says: {request.results[-1]}"}
        if "This is what" in request.text:
            return {"content": f"{request.agent} heard: {request.body}"}
        return {"content": f"{request.agent} answers"}
