"""The person of the office, and how long each page takes: pages.py person BASE TOKEN-FILE | pages.py time BASE KEY."""

import json
import re
import statistics
import sys
import time
import urllib.request

what, base = sys.argv[1], sys.argv[2]


def call(path, body=None, headers=None):
    request = urllib.request.Request(base + path, method="POST" if body is not None else "GET", headers=headers or {})
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode(), answer.headers


if what == "person":
    token = open(sys.argv[3]).read()
    text, _ = call("/household/person", {"name": "pat"}, {"X-Household-Token": token})
    print(json.loads(text)["api_key"])
    sys.exit()

text, _ = call("/dashboard/links", {}, {"X-API-Key": sys.argv[3]})
_, headers = call(json.loads(text)["url"].removeprefix(base))
cookie = {"Cookie": headers["Set-Cookie"].split(";")[0]}
overview, _ = call("/dashboard", headers=cookie)
session = re.search(r"/dashboard/conversations/([0-9a-f-]{36})", overview).group(1)
board, _ = call("/dashboard/tasks", headers=cookie)
task = re.search(r"/dashboard/tasks/([0-9a-f-]{36})", board).group(1)
listed, _ = call("/dashboard/conversations", headers=cookie)
before = re.search(r"before=([0-9a-f-]{36})", listed).group(1)
slow = False
for path in [
    "/dashboard", "/dashboard/conversations", f"/dashboard/conversations?before={before}", "/dashboard/conversations?q=number+77",
    "/dashboard/conversations?unread=1", "/dashboard/conversations?agent=agent-7", f"/dashboard/conversations/{session}",
    "/dashboard/tasks", f"/dashboard/tasks/{task}", "/dashboard/network", "/dashboard/agents", "/dashboard/agents/agent-7",
    "/dashboard/groups", "/dashboard/connections", "/dashboard/write", "/dashboard/health",
]:
    took, size = [], 0
    for _ in range(9):
        begin = time.perf_counter()
        text, _ = call(path, headers=cookie)
        took.append((time.perf_counter() - begin) * 1000)
        size = len(text)
    median = statistics.median(took)
    slow |= median >= 100
    print(f"{re.sub('[0-9a-f-]{36}', '…', path):44} {median:7.1f} {max(took):7.1f}   {size / 1000:5.1f} KB")
sys.exit("a page takes 100 ms or more" if slow else 0)
