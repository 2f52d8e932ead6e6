"""A small ACP agent that behaves as its first argument says; the second is a directory in which it notes what it was asked."""
import json, os, re, sys, threading

mode, place = sys.argv[1], sys.argv[2]
lock = threading.Lock()
sessions, running, cancelled = 0, set(), {}


def note(line):
    with open(os.path.join(place, "log"), "a") as log:
        log.write(line + "\n")


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def say(session, text, kind="agent_message_chunk"):
    update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    send({"method": "session/update", "params": {"sessionId": session, "update": update}})


def first_time(what):
    try:
        os.close(os.open(os.path.join(place, what), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def end(id, session, reason="end_turn"):
    running.discard(session)
    send({"id": id, "result": {"stopReason": reason}})


def turn(id, session, prompt):
    mail = re.findall(r' id="([^"]+)"', prompt)[-1]
    answer = "answer to " + mail
    if mode in ("slow", "slow-start"):
        say(session, "still working")
        cancelled[session].wait()
        note("cancelled")
        return end(id, session, "cancelled")
    if mode == "deaf":
        os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "600")
        return
    if mode == "dies" and "question 1" in prompt and first_time("died"):
        say(session, "half an ans")
        os._exit(7)
    if mode == "always-dies" and "question 0" in prompt:
        print("out of memory", file=sys.stderr, flush=True)
        os._exit(9)
    if mode == "huge":
        say(session, "x" * (9 * 1024 * 1024))
        for _ in range(40):
            say(session, "y" * 50_000)
    if mode == "garbage":
        print("Loaded cached credentials.", flush=True)
        print('{"not": "a message"}', flush=True)
    if mode == "refuses":
        return end(id, session, "refusal")
    if mode == "error" and first_time("failed"):
        running.discard(session)
        return send({"id": id, "error": {"code": -32603, "message": "Internal error", "data": {"details": "quota"}}})
    if mode == "together":
        say(session, answer)
        both.wait()
        return end(id, session)
    say(session, "let me think", "agent_thought_chunk")
    say(session, answer[:5])
    say(session, answer[5:])
    if "lost" in prompt:
        note("handed over: " + " ".join(re.findall(r"question \d+", prompt)))
    end(id, session)


both = threading.Barrier(2)
if mode == "babble":
    while True:
        print("warming up", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params", {})
    if method is None:
        note("permission: " + json.dumps(message["result"]["outcome"], sort_keys=True))
        session = id[len("ask-"):]
        say(session, message["result"]["outcome"].get("optionId", "cancelled"))
        end(asked[session], session)
        continue
    note(method)
    if method == "initialize":
        capabilities = {"loadSession": mode in ("loads", "load-fails")}
        about = {"name": "fake", "version": "1"}
        version = 7 if mode == "future" else 1
        send({"id": id, "result": {"protocolVersion": version, "agentCapabilities": capabilities, "agentInfo": about,
                                   "authMethods": [{"id": "key", "name": "Key"}]}})
    elif method == "session/new":
        if mode == "locked":
            send({"id": id, "error": {"code": -32000, "message": "Authentication required"}})
            continue
        assert os.path.isabs(params["cwd"]) and params["mcpServers"] == []
        if mode == "slow-start":
            threading.Event().wait(2)
        sessions += 1
        send({"id": id, "result": {"sessionId": f"s{sessions}-{os.getpid()}"}})
    elif method == "session/load":
        if mode == "load-fails":
            send({"id": id, "error": {"code": -32602, "message": "Invalid session identifier"}})
            continue
        say(params["sessionId"], "an old answer")
        send({"id": id, "result": {}})
    elif method == "session/prompt":
        session, prompt = params["sessionId"], params["prompt"][0]["text"]
        assert session not in running, "two prompts in one session"
        running.add(session)
        cancelled[session] = threading.Event()
        if mode == "asks-before-it-reads":
            # More answers than a pipe holds.
            for number in range(800):
                send({"id": f"ask-{number}", "method": "session/request_permission", "params": {"sessionId": session, "options": [
                    {"optionId": "reject_once", "name": "no", "kind": "reject_once"}]}})
            answered = [json.loads(sys.stdin.readline()) for _ in range(800)]
            note("answered: %d" % len({answer["id"] for answer in answered}))
            say(session, "answer to " + re.findall(r' id="([^"]+)"', prompt)[-1])
            end(id, session)
            continue
        if mode == "asks":
            asked = {session: id}
            options = [{"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "reject_once")]
            call = {"toolCallId": "1", "title": "rm -rf", "kind": "execute"}
            send({"id": "ask-" + session, "method": "session/request_permission",
                  "params": {"sessionId": session, "toolCall": call, "options": options}})
            continue
        threading.Thread(target=turn, args=(id, session, prompt), daemon=True).start()
    elif method == "session/cancel":
        if mode in ("slow", "slow-start"):
            cancelled[params["sessionId"]].set()
