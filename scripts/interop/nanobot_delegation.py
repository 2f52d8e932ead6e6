"""Steps of nanobot_run.py: tasks from one gateway to another, and what can go wrong with them."""

import json
import threading
import time

from nanobot_case import say
from nanobot_gateway import until


def delegated(case, person):
    case.model.when("a", "job:sum", case.model.send("b", "work:sum what is two and two"))
    case.model.when("b", "work:sum", "four, says b")
    person.say("please do job:sum")
    person.hears("b has the task")
    heard = person.hears("a heard:")
    assert "four, says b" in heard, heard
    until(10, "all updates are there", lambda: case.updates("a", "work:sum") == ["accepted", "working", "completed"])
    assert case.asks("a", "job:sum") == 2 and case.asks("b", "work:sum") == 1 and case.asks("a", "four, says b") == 1
    until(20, "b is idle again", lambda: case.is_status("b", "idle"))
    say("a task through two gateways: accepted, working, completed, and the answer in the conversation that asked")


def waits_for_b(case, person):
    case.b.stop()
    until(10, "b is offline", lambda: case.is_status("b", "offline"))
    case.model.when("a", "job:patient", case.model.send("b", "work:patient take your time"))
    case.model.when("a", "job:hasty", case.model.send("b", "work:hasty be quick", deadline="1s"))
    case.model.when("b", "work:patient", "done later")
    person.say("please do job:hasty")
    sent = time.monotonic()
    person.hears("b has the task")
    person.say("please do job:patient")
    person.hears("b has the task")
    # The test has to wait until the deadline has passed.
    time.sleep(max(0.0, sent + 1.5 - time.monotonic()))
    assert case.asks("b", "work:patient") == 0
    case.b.start().ready()
    heard = [person.hears("a heard:"), person.hears("a heard:")]
    assert any("done later" in text for text in heard), heard
    assert any("deadline" in text for text in heard), heard
    assert case.asks("b", "work:hasty be quick") == 0, "a task past its deadline cost a turn"
    say("a task for a stopped agent waits and is completed; one past its deadline is rejected, and the person hears why")


def quota(case, person):
    hold = threading.Event()
    case.model.when("a", "job:long", case.model.send("b", "work:long hold"))
    case.model.when("a", "job:second", case.model.send("b", "work:second"))
    case.model.when("b", "work:long", lambda _request: hold.wait(60) and "long is done")
    person.say("please do job:long")
    person.hears("b has the task")
    case.model.wait(lambda request: request.agent == "b" and "work:long" in request.text, "b works")
    until(10, "b is busy", lambda: case.is_status("b", "busy"))
    person.say("please do job:second")
    heard = person.hears("rejected")
    assert "quota" in heard, heard
    hold.set()
    assert "long is done" in person.hears("a heard:")
    assert case.asks("a", "quota:") == 0, "what the model was told by its tool came again as mail"
    say("a task above the quota is rejected at once, and the person hears why")


def killed(case, person):
    for name, end in (("killed", case.b.kill), ("stopped", case.b.stop)):
        in_the_middle(case, person, name, end)


def in_the_middle(case, person, name, end):
    hold, work = threading.Event(), f"work:{name}"
    case.model.when("a", f"job:{name}", case.model.send("b", work))
    case.model.when("b", work, lambda _request: hold.wait(60) and f"not harmed by being {name}")
    person.say(f"please do job:{name}")
    person.hears("b has the task")
    case.model.wait(lambda request: request.agent == "b" and work in request.text, "b works")
    end()
    hold.set()
    case.b.start().ready()
    assert f"being {name}" in person.hears("a heard:")
    states = until(10, "the end is told", lambda: (found := case.updates("a", work)) and "completed" in found and found)
    assert states.count("completed") == 1 and "failed" not in states and case.asks("a", f"being {name}") == 1, states
    repeated = [request for request in case.model.requests if request.agent == "b" and work in request.text]
    assert "before a restart" in repeated[-1].text, repeated[-1].text
    say(f"an agent {name} in the middle of its turn: done once ({', '.join(states)})")


def ring(case, person):
    model = case.model

    def at_c(request):
        if not request.results:
            return model.calls("mailbox_send", to="a", content="work:ring", kind="task")
        if len(request.results) == 1:
            return model.calls("mailbox_task", id=request.mail["task"], state="failed", note=request.results[0])

    model.when("a", "job:ring", model.send("b", "work:ring"))
    model.when("b", "New message from a", model.send("c", "work:ring"))
    model.when("c", "work:ring", at_c)
    person.say("please do job:ring")
    person.hears("b has the task")
    heard = person.hears("a heard:", 90)
    assert "already handled" in heard, heard
    assert case.asks("a", "New message from c") == 0
    assert case.updates("b", "work:ring")[-1] == "failed", case.updates("b", "work:ring")
    say(f"a ring of three ends, and the person hears why: {heard[:110]!r}")


def in_parts(case, person):
    """A result that is longer than one update, passed on by two agents."""
    result = " ".join(f"fact-{n:05}" for n in range(2_000))
    case.model.when("a", "job:report", case.model.send("b", "work:report"))
    case.model.when("b", "work:report", case.model.send("c", "work:facts"))
    case.model.when("b", "fact-00000", lambda request: f"b has {request.text.count('fact-')} facts")
    case.model.when("c", "work:facts", result)
    person.say("please do job:report")
    person.hears("b has the task")
    heard = person.hears("a heard:", 90)
    assert "b has 2000 facts" in heard, heard
    assert sum(1 for request in case.model.requests if request.agent == "b" and "fact-00000" in request.text) == 1
    states = case.updates("b", "work:facts")
    assert states.count("completed") == 1 and states[-1] == "completed", states
    say(f"a result of {len(result)} characters is one turn of the one who asked, with all of it ({', '.join(states)})")


def own_tool(case, _person):
    """nanobot's own tool `message` relays mail with its hops, and the model gets the refusal."""
    model = case.model
    model.when("b", "tool:pass", model.call("message", content="tool:round", channel="mailbox", chat_id="c"))
    model.when("c", "tool:round", model.call("message", content="round again", channel="mailbox", chat_id="probe"))
    case.probe.send({"to": "b", "text": "tool:pass it on", "subject": "tool"})
    asked = model.wait(lambda request: request.agent == "c" and "tool:round" in request.text and request.results, "c tried")
    assert "Error" in asked.results[0] and "already handled" in asked.results[0], asked.results
    [passed_on] = [mail for mail in mails(case, "c") if "tool:round" in json.dumps(mail)]
    assert (passed_on["ttl"], passed_on["trace"]) == (1, ["probe", "b"]), passed_on
    answer = case.probe.next(60)
    assert answer is not None and answer["from"] == "b", answer
    case.probe.ack(answer["id"])
    say("nanobot's own tool keeps ttl and trace, and the model hears that a round is refused")


def mails(case, agent):
    return [json.loads(path.read_text()) for path in (case.root / agent).glob("*/*.msg.json")]
