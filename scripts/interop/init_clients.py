"""`amb init` for real clients, each asked by its own command whether it understands what was written.

Needs the clients on the PATH; those that are not there are skipped. Nothing of the user's is touched: HOME is a throwaway.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

AMB = os.environ["AMB"]
# The number of tools on the page is checked by a test of the command line.
PAGE = pathlib.Path(__file__).parents[2] / "docs/setup-prompt.md"
TOOLS = re.search(r"must count (\d+ tools)", PAGE.read_text()).group(1)

# The client, its command, what it must be asked, what it must say.
CASES = (
    ("codex", "codex", ["mcp", "get", "mailbox"], "enabled: true", []),
    ("gemini", "gemini", ["mcp", "list"], "mailbox: ", []),
    ("claude-code", "claude", ["mcp", "get", "mailbox"], "Scope: Project config", []),
    ("claude-code", "claude", ["mcp", "list"], "Connected", ["--scope", "user"]),
    ("openclaw", "openclaw", ["mcp", "probe", "mailbox"], TOOLS, ["--bridge"]),
)

for client, program, question, wanted, flags in CASES:
    if shutil.which(program) is None:
        print(f"skip init {client:11} no {program} here")
        continue
    with tempfile.TemporaryDirectory() as home:
        project = pathlib.Path(home, "project")
        project.mkdir()
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("AMB_", "MAILBOX_", "XDG_", "CODEX_", "OPENCLAW_"))}
        environment.update(HOME=home, OPENCLAW_DISABLE_BONJOUR="1", OPENCLAW_NO_RESPAWN="1")
        # A project's file names the binary by its name alone.
        environment["PATH"] = f"{pathlib.Path(AMB).parent}:{environment['PATH']}"

        def run(*command):
            done = subprocess.run(
                command, cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180
            )
            return done.returncode, done.stdout + done.stderr

        office = ["--dir", str(pathlib.Path(home, "mail")), "--as", "ann"]
        code, said = run(AMB, *office, "init", client, *flags)
        assert code == 0, said
        code, said = run(program, *question)
        assert wanted in said, f"{program} {' '.join(question)}: exit {code}\n{said}"
        code, said = run(AMB, "init", client, *flags, "--undo")
        assert code == 0, said
        print(f"ok   init {client:11} {' '.join(flags):14} {program} says: {wanted}", flush=True)
