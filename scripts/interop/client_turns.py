"""A turn of a model in real clients, each with `amb mcp` as its mailbox: it checks, reads, replies and writes, while more mail comes.

    client_turns.py [CLIENT…]        claude-code codex gemini nanobot

The model is a stub on loopback (client_model.py). Told for each client: its version, which half of a tool's result reaches the model,
and what the client complained of. Fails where the mail did not go out or where a warning names channels or prompts. Clients that
are not on the PATH are skipped. Nothing of the user's is touched: HOME is a throwaway.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import client_model

AMB = os.environ["AMB"]
PROMPT = "Check your mailbox, answer what is there, and then stop."
# What a client must not say: that a notification or a method is unknown to it.
COMPLAINT = re.compile(r"channel|prompts|unknown notification|method not found|failed to validate", re.IGNORECASE)


def claude(run, home, url):
    environment = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "stub", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    environment |= {"DISABLE_AUTOUPDATER": "1"}
    log = home / "debug.log"
    done = run("claude", "-p", PROMPT, "--mcp-config", ".mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__mailbox",
               "--debug-file", str(log), environment=environment)  # fmt: skip
    said = log.read_text(errors="replace") if log.exists() else ""
    # The debug log has everything; only what concerns our server counts.
    return done, "\n".join(line for line in said.splitlines() if "mailbox" in line and re.search(r"\[(WARN|ERROR)\]", line))


def codex(run, home, url):
    config = home / ".codex/config.toml"
    provider = f'model = "stub"\nmodel_provider = "stub"\napproval_policy = "never"\n\n{config.read_text()}\n'
    provider += f'[model_providers.stub]\nname = "stub"\nbase_url = "{url}/v1"\nwire_api = "responses"\nrequires_openai_auth = false\n'
    config.write_text(provider)
    done = run("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", PROMPT, environment={})
    return done, "\n".join(line for line in done.stderr.splitlines() if re.search(r"\b(WARN|ERROR)\b", line))


def gemini(run, home, url):
    settings = home / ".gemini/settings.json"
    document = json.loads(settings.read_text()) | {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    settings.write_text(json.dumps(document))
    environment = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "stub"}
    done = run("gemini", "-p", PROMPT, "-m", "gemini-2.5-flash", "--skip-trust", "--approval-mode", "yolo", environment=environment)
    return done, "\n".join(line for line in done.stderr.splitlines() if re.search(r"mailbox|MCP", line))


def nanobot(run, home, url):
    config = home / ".nanobot/config.json"
    document = json.loads(config.read_text())
    document["providers"] = {"custom": {"apiKey": "EMPTY", "apiBase": f"{url}/v1"}}
    defaults = {"provider": "custom", "model": "stub-model", "maxTokens": 512, "contextWindowTokens": 200000, "dream": {"enabled": False}}
    document["agents"] = {"defaults": defaults}
    config.write_text(json.dumps(document))
    done = run("nanobot", "agent", "-m", PROMPT, environment={})
    # It writes its log and the answer to both.
    return done, "\n".join(line for line in (done.stdout + done.stderr).splitlines() if re.search(r"WARN|ERROR|Failed", line))


CLIENTS = (("claude-code", "claude", claude), ("codex", "codex", codex), ("gemini", "gemini", gemini), ("nanobot", "nanobot", nanobot))


def turn(client, program, drive, home):
    project = home / "project"
    project.mkdir()
    dropped = ("AMB_", "MAILBOX_", "XDG_", "CODEX_", "CLAUDE", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    clean.update(HOME=str(home), PATH=f"{pathlib.Path(AMB).parent}:{clean['PATH']}", NO_COLOR="1")

    def run(*command, environment=None, check=True):
        done = subprocess.run(
            command, cwd=project, env=clean | (environment or {}), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180
        )
        if check and done.returncode:
            raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    office = ["--dir", str(home / "mail")]
    for agent in ("ann", "ben"):
        run(AMB, *office, "register", agent)
    sent = json.loads(run(AMB, *office, "--as", "ben", "send", "ann", "what is 2 + 2?", "--subject", "sums", "--json").stdout)
    run(AMB, *office, "--as", "ann", "init", client)
    more = [AMB, *office, "--as", "ben", "send", "ann", "and 3 + 3?", "--subject", "more sums"]
    conversation = client_model.Conversation(lambda: run(*more))
    server, url = client_model.serve(conversation)
    try:
        done, complaints = drive(run, home, url)
    finally:
        server.shutdown()
    if os.environ.get("KEEP"):
        pathlib.Path(os.environ["KEEP"], f"{client}.json").write_text(json.dumps(conversation.requests, indent=1))
    history = json.loads(run(AMB, *office, "--as", "ben", "read", sent["session_id"], "--json").stdout)["messages"]
    inbox = run(AMB, *office, "--as", "ben", "inbox", "--json").stdout
    halves = [client_model.half_of(result) for result in conversation.results]
    version = run(program, "--version").stdout.strip().splitlines()[0]
    seen = "both halves" if "both" in halves or len(set(halves)) > 1 else f"the {halves[0]} half" if halves else "nothing"
    print(f"turn {client:11} {version}: {len(conversation.offered)} tools offered; of {len(halves)} results the model sees {seen}")
    assert any(message["content"] == client_model.REPLY for message in history), f"no reply: {history}\n{done.stdout}\n{done.stderr}"
    assert client_model.NEWS in inbox or "news" in inbox, f"no new thread: {inbox}"
    loud = [line for line in (done.stderr + "\n" + complaints).splitlines() if COMPLAINT.search(line)]
    assert not loud, f"{client} complains:\n" + "\n".join(loud)
    quiet = [line for line in complaints.splitlines() if line.strip()]
    print(f"{'':11} complaints about the mailbox: {len(quiet)}" + "".join(f"\n{'':13}{line[:200]}" for line in quiet[:5]))


for client, program, drive in CLIENTS:
    if len(sys.argv) > 1 and client not in sys.argv[1:]:
        continue
    if shutil.which(program) is None:
        print(f"skip turn {client:11} no {program} here")
        continue
    with tempfile.TemporaryDirectory() as home:
        turn(client, program, drive, pathlib.Path(home))
