"""The section ``channels.mailbox`` of nanobot's configuration."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from agent_mailbox import AsyncMailbox


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


@dataclass(frozen=True)
class MailboxConfig:
    """The settings of the agent's mailbox. Keys are written ``agentId`` or ``agent_id``."""

    enabled: bool = False
    agent_id: str = ""
    description: str = ""
    capabilities: list[str] = field(default_factory=list)
    allow_from: list[str] = field(default_factory=lambda: ["*"])
    max_concurrent_tasks: int = 3
    poll_interval: float = 5.0
    """Seconds between polls where the directory cannot be watched, and between heartbeats."""
    mailboxes_root: str = "~/.nanobot/mailboxes"

    server_url: str = ""
    """A network office to use in place of the directory, as the agent that the key belongs to."""
    api_key: str = field(default="", repr=False)
    """The key for ``server_url``. If it is empty: MAILBOX_API_KEY, or the key that ``amb register`` stored for ``agent_id``."""

    accept_tasks: bool = True
    """Whether a task is accepted before the model sees it. If not, the model decides by its answer or with ``mailbox_task``."""
    progress_turns: bool = False
    """Whether the updates "accepted" and "working" get a turn of the model too."""

    transcripts: bool = False
    """Whether group chats are recorded and shown to the model."""
    transcripts_root: str = "~/.nanobot/transcripts"
    transcript_lines: int = 20
    feishu_url: str = ""
    """The address of Feishu's API, if it is not that of the channel ``feishu``."""

    @classmethod
    def parse(cls, section: Any) -> MailboxConfig:
        """Parses a section as nanobot passes it: a dict, a model, or a MailboxConfig. Unknown keys are ignored."""
        if isinstance(section, cls):
            return section
        values = dict(section) if isinstance(section, Mapping) else _attributes(section)
        found: dict[str, Any] = {}
        for item in fields(cls):
            value = values.get(_camel(item.name), values.get(item.name))
            if value is not None:
                found[item.name] = _checked(item.name, value, getattr(_DEFAULTS, item.name))
        return cls(**found)

    @property
    def key(self) -> str:
        """The key for the server: from the section, the environment, or the file of ``amb register``."""
        return self.api_key or os.environ.get("MAILBOX_API_KEY", "") or _stored_key(self.server_url, self.agent_id)

    def card(self) -> dict[str, Any]:
        """The agent's card."""
        return {
            "description": self.description,
            "capabilities": self.capabilities,
            "allow_from": self.allow_from,
            "max_concurrent_tasks": self.max_concurrent_tasks,
        }

    def to_section(self) -> dict[str, Any]:
        """The section as it is written into ``config.json``."""
        return {_camel(item.name): getattr(self, item.name) for item in fields(self)}


_DEFAULTS = MailboxConfig()


def _stored_key(server: str, agent: str) -> str:
    """The key that ``amb register`` or ``amb init`` stored for this agent at this server; empty if there is none."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    directory = pathlib.Path(base) if os.path.isabs(base) else pathlib.Path.home() / ".config"
    try:
        known = json.loads((directory / "amb" / "keys.json").read_text())
        keys: dict[str, Any] = next((keys for url, keys in known.items() if url.rstrip("/") == server.rstrip("/")), {})
        return str(keys.get(agent, ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _attributes(section: Any) -> dict[str, Any]:
    if section is None:
        return {}
    dump = getattr(section, "model_dump", None)
    return dict(dump()) if callable(dump) else dict(vars(section))


def _checked(name: str, value: Any, default: Any) -> Any:
    """Returns the value if it has the type of the default. A single text counts as a list."""
    if isinstance(default, list):
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list | tuple) and all(isinstance(item, str) for item in items):
            return list(items)
    elif isinstance(default, bool):
        if isinstance(value, bool):
            return value
    elif isinstance(default, int | float):
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return type(default)(value)
    elif isinstance(value, str):
        return value
    kind = {list: "a list of texts", bool: "true or false", int: "a number above 0", float: "a number above 0"}
    raise ValueError(f"channels.mailbox.{_camel(name)} is {kind.get(type(default), 'a text')}, not {value!r}")


def from_nanobot() -> MailboxConfig | None:
    """The section in nanobot's configuration; None if there is none."""
    from nanobot.config.loader import load_config

    section = getattr(load_config().channels, "mailbox", None)
    return None if section is None else MailboxConfig.parse(section)


async def open_mailbox(config: MailboxConfig) -> AsyncMailbox:
    """The agent's mailbox, in the directory or on the server that the configuration names."""
    if config.server_url:
        if not config.key:
            raise ValueError(
                "there is no key for channels.mailbox.serverUrl: `amb register NAME --server URL` keeps one for agentId, or set apiKey or "
                "MAILBOX_API_KEY"
            )
        return await AsyncMailbox.server(config.server_url, config.key)
    if not config.agent_id.strip():
        raise ValueError("channels.mailbox.agentId is empty: give this agent a name")
    return await AsyncMailbox.directory(
        config.mailboxes_root, config.agent_id, poll_interval=config.poll_interval, transcripts=config.transcripts_root
    )
