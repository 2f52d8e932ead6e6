"""The commands of docs/setup-prompt.md, one a line, in order: those in the prompt, without the way back.

    setup_prompt.py SERVER_URL AGENT_NAME YOUR_CONTACT
"""

import pathlib
import re
import sys

page = pathlib.Path(__file__).resolve().parents[2] / "docs/setup-prompt.md"
prompt = re.search(r"````markdown\n(.*?)\n````\n", page.read_text(), re.DOTALL).group(1)
for span in re.findall(r"`([^`\n]+)`", prompt):
    program = next((word for word in span.split() if "=" not in word), "")
    if program not in ("amb", "openclaw") or " " not in span or "--undo" in span:
        continue
    for word, value in zip(("SERVER_URL", "AGENT_NAME", "YOUR_CONTACT"), sys.argv[1:]):
        span = span.replace(word, value)
    print(span)
    if "--dry-run" in span:
        # "When I agree, run the same command without --dry-run."
        print(span.replace(" --dry-run", ""))
