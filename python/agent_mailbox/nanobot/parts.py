"""Results that are longer than one update of a task: sent in parts, and shown to the model as one.

All parts but the last are updates with the state ``working``, which cost no hop and no turn; the last one ends the task. Whoever
receives them keeps them claimed until that one comes, so that they come again if the process dies in between.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from datetime import datetime
from typing import Any

from agent_mailbox import text_of

MAX_NOTE = 10_000
"""Characters of a note on a task."""
MAX_TEXT = 100_000
"""Characters of a message's text."""
MAX_KEPT = 64
"""Parts that are kept for results that have not ended; the oldest make room, and are named as missing."""

_HEAD = re.compile(r"\[part (\d{1,4}) of (\d{1,4})\]\n")
_HEAD_ROOM = 40


def split(text: str, limit: int) -> list[str]:
    """A text as parts of at most `limit` characters, each with a line that counts them; one alone has none."""
    if len(text) <= limit:
        return [text]
    room = limit - _HEAD_ROOM
    bodies = [text[at : at + room] for at in range(0, len(text), room)]
    return [f"[part {at} of {len(bodies)}]\n{body}" for at, body in enumerate(bodies, 1)]


def head_of(mail: dict[str, Any]) -> tuple[int, int] | None:
    """Which part of how many an update is; None where it is whole."""
    if mail["kind"] != "task_update" or not (mail.get("task") or {}).get("id"):
        return None
    found = _HEAD.match(text_of(mail))
    if found is None:
        return None
    at, count = int(found[1]), int(found[2])
    return (at, count) if 1 <= at <= count and count > 1 else None


def is_early(mail: dict[str, Any]) -> bool:
    """Whether this is a part that others follow."""
    head = head_of(mail)
    return head is not None and head[0] < head[1] and mail["task"].get("state") == "working"


class Parts:
    """The early parts of results, by task, as they came."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[tuple[str, str], list[dict[str, Any]]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._tasks.values()))

    @property
    def ids(self) -> list[str]:
        """The messages that are kept."""
        return [mail["id"] for kept in self._tasks.values() for mail in kept]

    def keep(self, mail: dict[str, Any]) -> list[dict[str, Any]]:
        """Keeps an early part. Returns the messages that had to make room."""
        kept = self._tasks.setdefault(_key(mail), [])
        kept.append(mail)
        dropped = []
        while len(self) > MAX_KEPT:
            oldest = next(iter(self._tasks))
            dropped.append(self._tasks[oldest].pop(0))
            if not self._tasks[oldest]:
                del self._tasks[oldest]
        return dropped

    def take(self, mail: dict[str, Any]) -> list[dict[str, Any]]:
        """The parts that came before the update that ends a task; they are not kept any longer."""
        return self._tasks.pop(_key(mail), [])


def _key(mail: dict[str, Any]) -> tuple[str, str]:
    return mail["from"], mail["task"]["id"]


def joined(mail: dict[str, Any], early: list[dict[str, Any]]) -> dict[str, Any]:
    """The last part with what came before it, as one message. A beginning that was made anew counts alone."""
    head = head_of(mail)
    if head is None:
        return mail
    texts: dict[int, str] = {}
    for part in sorted(early, key=lambda part: datetime.fromisoformat(part["sent_at"])):
        found = head_of(part)
        if found is None or found[1] != head[1]:
            continue
        if found[0] == 1:
            texts.clear()
        texts[found[0]] = text_of(part)
    texts[head[0]] = text_of(mail)
    missing = [str(at) for at in range(1, head[1] + 1) if at not in texts]
    whole = "".join(_HEAD.sub("", texts[at], count=1) for at in sorted(texts))
    if missing:
        whole = f"[parts {', '.join(missing)} of {head[1]} did not come]\n{whole}"
    return {**mail, "parts": [{"type": "text", "text": whole}]}
