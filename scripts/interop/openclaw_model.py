"""A model for the scripts with a real OpenClaw: speaks OpenAI's chat completions, answers by the mail's id, writes down each call.

    openclaw_model.py PORT LOG

A "slow question" is answered after some seconds, a "very slow question" after 20; one that "needs no answer" and a "task to
complete" with the lines that tell the bridge so. A question that says "call the tool NAME" gets that call, and what the tool
answered is repeated. A turn that tells of a request for a connection is written down as request:NAME.
"""

import re
import sys
import threading
import time

import completions
from completions import text_of

LOG = sys.argv[2]


def newest(messages):
    """The newest question that is no mail (what a mail asks for is not done) and nothing that OpenClaw itself added, and what
    came after it."""
    for at in range(len(messages) - 1, -1, -1):
        text = text_of(messages[at].get("content"))
        if messages[at]["role"] == "user" and not text.startswith("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"):
            return ("" if re.search(r"<mail-\S+ ", text) else text), messages[at + 1 :]
    return "", []


def subject_of(text):
    """What a message of the user's is about: a mail by its id, or a request for a connection by who asks."""
    if found := re.search(r'<mail-\S+ [^>]*\bid="([^"]+)"', text):
        return found.group(1), text
    if found := re.search(r"\[Mailbox\] (\S+) asks to be connected", text):
        # A stranger's text would be visible in the log.
        return f"request:{found.group(1)}{' IGNORE' if 'IGNORE' in text else ''}", text
    return None


def answer(_path, request):
    asked = [text_of(message.get("content")) for message in request["messages"] if message["role"] == "user"]
    mail, text = next(filter(None, map(subject_of, reversed(asked))), ("none", ""))
    with open(LOG, "a") as log:
        log.write(f"{mail}\n")
    if "very slow question" in text:
        time.sleep(20)
    elif "slow question" in text:
        time.sleep(8)
    return completions.completion(request, said_to(request, mail, text))


def said_to(request, mail, text):
    """Returns the model's message: an answer, or a tool call."""
    question, since = newest(request["messages"])
    wanted = re.search(r"call the tool `?(\w+)", question)
    told = [text_of(message.get("content")) for message in since if message["role"] == "tool"]
    if wanted and told:
        return {"content": f"the tool said: {told[-1]}"}
    if wanted:
        known = [tool["function"]["name"] for tool in request.get("tools", [])]
        names = [name for name in known if name == wanted.group(1) or name.endswith("__" + wanted.group(1))]
        if not names:
            return {"content": f"no tool {wanted.group(1)} among {known}"}
        return completions.call(names[0], {}, id=f"call_{int(time.time() * 1000)}")
    if "question that needs no answer" in text:
        return {"content": "[mailbox: no answer]"}
    if "task to complete" in text:
        return {"content": f"[mailbox: completed]\nstub result of {mail}"}
    return {"content": f"stub answer to {mail}"}


server, _ = completions.serve(answer, int(sys.argv[1]))
threading.Event().wait()
