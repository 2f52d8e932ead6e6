"""The MCP conformance suite against `amb mcp --http`, both requirement sets.

The suite tests whole SDKs, so most scenarios call tools, prompts and resources that only its example server has. A failure
counts against us unless what is missing is such a fixture, or a capability that we do not declare.
"""

import json
import pathlib
import re
import shutil
import subprocess

from offices import AMB, directory, free_port, until_up

HOME = pathlib.Path(__file__).resolve().parents[2] / "target/interop/npm"
FIXTURE = re.compile(
    r"Unknown tool: |Not testable: |no resource \"test://|Tool 'json_schema_2020_12_tool' not found"
    # Not declared: prompts, completions, logging, the tasks extension, input that a tool asks its client for.
    r"|(prompts|completion|logging)/\w+|tasks/\w+ MUST return -32021|capabilities.extensions MUST be advertised"
    r"|expected -32602; got -32601|routing-task fixture|tools/call for failing_job"
    r"|Expected InputRequiredResult|could not get initial InputRequiredResult"
)


def verdicts(url, requirements):
    out = HOME / f"conformance-{requirements}"
    shutil.rmtree(out, ignore_errors=True)
    command = ["node_modules/.bin/conformance", "server", "--url", url, "--requirements", requirements, "-o", str(out)]
    subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=600)
    passed, fixtures, failed = [], [], []
    for path in sorted(out.glob("**/checks.json")):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*$", "", path.parent.name).removeprefix("server-")
        wrong = [check for check in json.loads(path.read_text()) if check["status"] == "FAILURE"]
        ours = [check for check in wrong if not FIXTURE.search(str(check.get("errorMessage") or check.get("details")))]
        (failed if ours else fixtures if wrong else passed).append(scenario)
        for check in ours:
            print(f"FAIL {requirements} {scenario}: {check['id']}: {check.get('errorMessage')}")
    return passed, fixtures, failed


with directory(["alice", "bob"]) as office:
    port = free_port()
    command = [AMB, *office.arguments("alice", "mcp", "--http", f"127.0.0.1:{port}")]
    log = pathlib.Path(office.home, "log").open("w+")
    server = subprocess.Popen(command, env=office.environment("alice"), stdout=log, stderr=log)
    bad = False
    try:
        until_up(f"http://127.0.0.1:{port}/mcp", server, log)
        for requirements in ("2026-07-28", "2025-11-25"):
            passed, fixtures, failed = verdicts(f"http://127.0.0.1:{port}/mcp", requirements)
            bad = bad or bool(failed) or not passed
            print(f"{'FAIL' if failed else 'ok  '} conformance {requirements}: {len(passed)} scenarios pass, {len(failed)} fail")
            print(f"     pass: {', '.join(passed)}")
            print(f"     need fixtures or capabilities that we do not have: {', '.join(fixtures)}")
    finally:
        server.terminate()
        server.wait(timeout=30)
        log.close()
    if bad:
        raise SystemExit(1)
