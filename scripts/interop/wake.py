"""Mail wakes real clients: an idle Claude Code and an idle Codex answer each other with no person there, on a stub model.

    wake.py [ROUNDS]        rounds of the latency measurement, 8 unless told

Prints the versions, the time from `send` answered to the model's request, and the number of model calls.
"""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import client_model
import wake_clients
import wake_model
from wake_clients import AMB, Claude, Codex, wait_for

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 8
APART = 10.5  # seconds; a session is rung every ten at most
ROOT = tempfile.TemporaryDirectory()
HOME = pathlib.Path(ROOT.name, "home")
HOME.mkdir()
OFFICE = ["--dir", str(HOME / "mail"), "--layout", "nanobot"]


def amb(agent, *arguments):
    done = subprocess.run(
        [AMB, *OFFICE, "--as", agent, *arguments], env=wake_clients.clean(HOME), capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise SystemExit(f"amb {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def send(sender, to, text, *more):
    """Sends; returns the message and the moment at which the office had answered."""
    sent = json.loads(amb(sender, "send", to, text, "--json", *more))
    return sent, time.monotonic()


def status(agent):
    return json.loads(amb(agent, "wake", "status", "--json"))["sessions"]


def idle(*agents):
    wait_for(lambda: all(agent.doing is None for agent in agents), "idle agents")


def figures(name, waits):
    waits = sorted(waits)
    print(f"latency  {name:7} n={len(waits)}  p50 {statistics.median(waits) * 1000:.0f} ms  min {waits[0] * 1000:.0f}  max {waits[-1] * 1000:.0f}")
    return statistics.median(waits)


def latency(agents):
    waits = {name: [] for name in agents}
    for number in range(ROUNDS):
        time.sleep(APART)
        for name, model in agents.items():
            before = len(model.turns)
            _, answered = send("boss", name, f"note {number}", "--subject", f"note {number}")
            wait_for(lambda: len(model.turns) > before, f"{name} woken for note {number}")
            waits[name].append(model.turns[before] - answered)
            idle(model)
    return {name: figures(name, found) for name, found in waits.items()}


def answer_each_other(client, model, other):
    """`client`'s user asks it to write; then nobody types, and the other side's answer wakes it."""
    time.sleep(APART)
    model.answers_to, other.answers_to = set(), {model.name}
    turns, answered = len(model.turns), other.answered
    model.errand = {"to": other.name, "content": "are you there?", "subject": f"question of {model.name}"}
    client.say("Ask the other agent whether it is there, and stop.")
    wait_for(lambda: other.answered > answered, f"{other.name} answers")
    wait_for(lambda: len(model.turns) > turns + 1, f"{model.name} is woken by the answer")
    idle(model, other)
    print(f"answer   {model.name} asked, idle {other.name} answered by itself, and the answer woke idle {model.name}")


def between_steps(client, model, urgent):
    time.sleep(APART)
    model.answers_to, model.slow = set(), 3
    turns, rung = len(model.turns), model.rung_mid_turn
    user = threading.Thread(target=client.say, args=("Work on something for a while.",))
    user.start()
    wait_for(lambda: model.doing == "slow", "a turn under way")
    sent, _ = send("boss", model.name, "while you work", "--subject", "meanwhile", *(["--priority", "urgent"] if urgent else []))
    user.join()
    wait_for(lambda: sent["message_id"] in model.read, "the mail is read")
    idle(model)
    assert model.rung_mid_turn == rung + 1 and len(model.turns) == turns + 1, f"not in the same turn: {model.turns}"
    print(f"busy     {model.name} was told between two calls of one turn" + (" (urgent)" if urgent else ""))


def ten_mails(claude, codex):
    """A chain of automatic answers begins with nine hops left, so its tenth mail is the last and wakes nobody."""
    time.sleep(APART)
    for model in (claude, codex):
        model.answers_to, model.answered = {claude.name, codex.name}, 0
    calls, turns, empty = [sum(getattr(model, what) if what != "turns" else len(model.turns) for model in (claude, codex)) for what in ("calls", "turns", "empty")]
    first = {"id": "chain-1", "from": claude.name, "to": codex.name, "type": "message", "subject": "chain", "content": "mail 1", "ttl": 9}
    first |= {"trace": [claude.name], "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    box = HOME / "mail" / codex.name / "inbox"
    draft = box / ".draft"
    draft.write_text(json.dumps(first))
    draft.rename(box / "chain-1.msg.json")
    wait_for(lambda: claude.answered + codex.answered >= 9, "nine answers", 180)
    idle(claude, codex)
    time.sleep(APART * 2)  # An eleventh mail, or a wake-up for the tenth, would come now.
    idle(claude, codex)
    calls, turns, empty = [
        sum(getattr(model, what) if what != "turns" else len(model.turns) for model in (claude, codex)) - before
        for what, before in (("calls", calls), ("turns", turns), ("empty", empty))
    ]
    answers = claude.answered + codex.answered
    print(f"chain    10 mails, {answers} answers, then silence: {turns} turns, {calls} model calls ({calls / turns:.1f} a turn), {empty} empty wake-ups")
    assert answers == 9 and turns == 9 and empty == 0, f"answers {answers}, turns {turns}, empty {empty}"


def killed_and_resumed(claude, model, url):
    session = claude.session
    claude.kill()
    model.reset()
    sent, _ = send("boss", model.name, "while you were dead", "--subject", "dead")
    turns = len(model.turns)
    resumed = Claude(HOME, HOME / "claude", OFFICE, model.name, url, resume=session)
    wait_for(lambda: sent["message_id"] in model.read, "the mail is read after the resume")
    idle(model)
    print(f"resume   killed with -9, resumed as {session[:8]}…: the mail of the meantime woke it ({len(model.turns) - turns} turn)")
    return resumed


def codex_killed_and_resumed(codex, model):
    """Its thread is known again when the model has called a tool, which the server's instructions ask for at the start."""
    time.sleep(APART)
    codex.kill()
    model.reset()
    sent, _ = send("boss", model.name, "while you were dead", "--subject", "dead")
    codex.resume()
    codex.say("Begin.")
    wait_for(lambda: sent["message_id"] in model.read, "the mail is read after the resume")
    idle(model)
    time.sleep(APART)
    turns = len(model.turns)
    sent, answered = send("boss", model.name, "and now", "--subject", "alive")
    wait_for(lambda: sent["message_id"] in model.read, "the resumed thread is woken")
    idle(model)
    print(f"resume   {model.name}: daemon killed with -9, thread resumed: nothing lost, and the next mail woke it after {(model.turns[turns] - answered) * 1000:.0f} ms")


def two_sessions(model, url, other_model, other_url):
    """Both as one agent; the one that was active last is woken."""
    other = Claude(HOME, HOME / "claude-two", OFFICE, model.name, other_url)
    other.say("Begin.")
    idle(other_model)
    time.sleep(APART)
    before = len(model.turns), len(other_model.turns)
    sent, _ = send("boss", model.name, "for one of you", "--subject", "one")
    wait_for(lambda: sent["message_id"] in other_model.read, "the session active last reads it")
    idle(model, other_model)
    time.sleep(6)  # The other would look after its lease in five seconds.
    assert (len(model.turns), len(other_model.turns)) == (before[0], before[1] + 1), "both woke"
    print("lease    two sessions of one agent: the one active last woke, the other did not")
    other.close()


def main():
    print(f"clients  {wake_clients.version('claude')}, {wake_clients.version('codex')}, {subprocess.check_output([AMB, '--version'], text=True).strip()}")
    for agent in ("cla", "cod", "boss"):
        amb(agent, "register", agent)
    claude_model, codex_model, second_model = wake_model.Agent("cla"), wake_model.Agent("cod"), wake_model.Agent("cla")
    (_, claude_url), (_, codex_url), (_, second_url) = (client_model.serve(model) for model in (claude_model, codex_model, second_model))
    claude = Claude(HOME, HOME / "claude", OFFICE, "cla", claude_url)
    codex = Codex(HOME, HOME / "codex", OFFICE, "cod", codex_url)
    try:
        claude.say("Begin.")
        codex.say("Begin.")
        idle(claude_model, codex_model)
        medians = latency({"cla": claude_model, "cod": codex_model})
        answer_each_other(claude, claude_model, codex_model)
        answer_each_other(codex, codex_model, claude_model)
        between_steps(claude, claude_model, urgent=False)
        between_steps(codex, codex_model, urgent=True)
        ten_mails(claude_model, codex_model)
        claude_model.answers_to = codex_model.answers_to = set()
        claude = killed_and_resumed(claude, claude_model, claude_url)
        codex_killed_and_resumed(codex, codex_model)
        two_sessions(claude_model, claude_url, second_model, second_url)
        for agent in ("cla", "cod"):
            left = json.loads(amb(agent, "inbox", "--unread", "--json"))["sessions"]
            print(f"unread   {agent}: {sum(session['unread_count'] for session in left)}")
        assert all(median < 0.5 for median in medians.values()), f"slower than 500 ms: {medians}"
    except BaseException:
        for agent in ("cla", "cod"):
            print(json.dumps(status(agent), indent=1), file=sys.stderr)
        raise
    finally:
        claude.close()
        codex.close()
        # The daemon leaves a process that looks for updates.
        for pid in wake_clients.processes_of(HOME):
            os.kill(pid, signal.SIGKILL)


main()
