"""Conversions between the fields of nanobot's files and those of the offices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Suffix of the file names of a server's messages, which have no files.
ENDING = ".msg.json"


def draft_of(to_id: str, msg: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the fields of a message file to a draft."""
    content = msg.get("content")
    if isinstance(content, Mapping):
        content = content.get("parts", [content] if content else [])
    parts = [content] if isinstance(content, str) else list(content or [])
    draft: dict[str, Any] = {
        "to": to_id,
        "kind": msg.get("type", "message"),
        "parts": [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts],
    }
    for key in ("callback", "metadata", "subject", "priority", "correlation_id"):
        if msg.get(key):
            draft[key] = msg[key]
    task = msg.get("task")
    if isinstance(task, Mapping) and task.get("deadline") and draft["kind"] == "task":
        draft["deadline"] = task["deadline"]
    return draft


def card_of(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Converts an agent to the fields of ``_registry.json``."""
    return {
        "agent_id": agent["name"],
        "description": agent["description"],
        "capabilities": agent["capabilities"],
        "status": agent["status"],
        "allow_from": agent["allow_from"],
        "max_concurrent_tasks": agent["max_concurrent_tasks"],
        "current_tasks": agent["current_tasks"],
        "registered_at": agent.get("registered_at"),
        "last_heartbeat": agent.get("last_seen"),
    }


def filed_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a message of a server to the fields of a message file."""
    filed = {key: value for key, value in message.items() if key not in ("kind", "parts", "sent_at", "session")}
    filed["type"] = message["kind"]
    filed["timestamp"] = message["sent_at"]
    filed["content"] = {"parts": message["parts"]}
    filed.setdefault("reply_to", None)
    filed.setdefault("metadata", {})
    if "session" in message:
        filed["session_id"] = message["session"]
    filed["filename"] = f"{message['id']}{ENDING}"
    return filed
