"""Results that are longer than one update of a task: sent in parts, and shown to the model as one.

All parts but the last are updates with the state ``working``, which cost no hop and no turn; the last one ends the task. The receiver
keeps them claimed until the last one arrives, so that they are delivered again if its process dies before.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from datetime import datetime
from typing import Any

from agent_mailbox import text_of

MAX_NOTE = 10_000
"""Maximum length of a note on a task."""
MAX_TEXT = 100_000
"""Maximum length of a message's text."""
MAX_KEPT = 64
"""Maximum number of parts kept for incomplete results; the oldest are dropped, and reported as missing."""

_HEAD = re.compile(r"\[part (\d{1,4}) of (\d{1,4})\]\n")
_HEAD_ROOM = 40


def split(text: str, limit: int) -> list[str]:
    """Splits a text into parts of at most `limit` characters, each with a header line. A single part has none."""
    if len(text) <= limit:
        return [text]
    room = limit - _HEAD_ROOM
    bodies = [text[at : at + room] for at in range(0, len(text), room)]
    return [f"[part {at} of {len(bodies)}]\n{body}" for at, body in enumerate(bodies, 1)]


def head_of(mail: dict[str, Any]) -> tuple[int, int] | None:
    """Number of this part and number of parts; None if the update is not a part."""
    if mail["kind"] != "task_update" or not (mail.get("task") or {}).get("id"):
        return None
    found = _HEAD.match(text_of(mail))
    if found is None:
        return None
    at, count = int(found[1]), int(found[2])
    return (at, count) if 1 <= at <= count and count > 1 else None


def is_early(mail: dict[str, Any]) -> bool:
    """Whether this is a part other than the last."""
    head = head_of(mail)
    return head is not None and head[0] < head[1] and mail["task"].get("state") == "working"


class Parts:
    """The early parts of results, by task, in order of arrival."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[tuple[str, str], list[dict[str, Any]]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._tasks.values()))

    @property
    def ids(self) -> list[str]:
        """The ids of the kept messages."""
        return [mail["id"] for kept in self._tasks.values() for mail in kept]

    def keep(self, mail: dict[str, Any]) -> list[dict[str, Any]]:
        """Keeps an early part. Returns the messages that were dropped for it."""
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
        """Removes and returns the earlier parts of the update that ends a task."""
        return self._tasks.pop(_key(mail), [])


def _key(mail: dict[str, Any]) -> tuple[str, str]:
    return mail["from"], mail["task"]["id"]


def joined(mail: dict[str, Any], early: list[dict[str, Any]]) -> dict[str, Any]:
    """Joins the last part and the earlier ones to one message. If part 1 was sent again, the parts before it are ignored."""
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
