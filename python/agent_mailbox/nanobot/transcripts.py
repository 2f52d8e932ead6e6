"""Transcripts of group chats: each turn is shown what people and other bots wrote.

A chat service delivers messages of people to a bot, but not those of other bots. Every bot records both in one file for each chat, by
channel and chat (never by topic or session), and reads there what the others wrote.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from loguru import logger

from agent_mailbox import MailboxError, Transcripts, render_transcript, transcript_speakers
from agent_mailbox.nanobot.config import MailboxConfig

_MAX_SESSIONS = 1_000
_GROUP_TYPES = ("group", "supergroup")
_MAX_LINE = 4_000
_MAX_SHOWN = 20_000
"""Maximum characters of one line, and of all lines, in a turn."""
_FEISHU_WAIT = 5.0
"""Timeout for Feishu's history in seconds."""
_HEADING = "What was said in this chat, by people and by other agents, and not shown to you before:"


def is_group(metadata: dict[str, Any]) -> bool:
    """Whether the metadata of a message, of any channel, marks a group chat."""
    return metadata.get("chat_type") in _GROUP_TYPES or metadata.get("is_group") is True


class GroupTranscripts:
    """The transcripts of one gateway."""

    def __init__(self, config: MailboxConfig, bus: Any) -> None:
        self.me = config.agent_id
        self.lines = config.transcript_lines
        self._store = Transcripts(config.transcripts_root)
        self._feishu_url = config.feishu_url
        self._bus = bus
        self._groups: OrderedDict[str, None] = OrderedDict()
        self._shown: OrderedDict[str, set[Any]] = OrderedDict()

    @classmethod
    def of(cls, config: MailboxConfig, bus: Any) -> GroupTranscripts | None:
        """The transcripts, if they are enabled."""
        return cls(config, bus) if config.transcripts else None

    async def record_received(self, channel: str, chat_id: str, sender: str, content: str, metadata: dict[str, Any]) -> None:
        """Records a message of a group. Bots that receive the same message record it once, by its id."""
        if not is_group(metadata) or not content.strip():
            return
        key = f"{channel}:{chat_id}"
        _keep(self._groups, key, None)
        await self._append(key, "user", content, sender, metadata.get("message_id"))

    async def context(self, request: Any) -> str | None:
        """The messages of the request's chat that were not shown in its session before, fenced. Records the request itself."""
        metadata = request.metadata or {}
        if not is_group(metadata):
            return None
        key, session = f"{request.channel}:{request.chat_id}", request.session_key or ""
        # An answer of a peer has a turn in the conversation, but is not a message of the chat.
        is_mail = bool(metadata.get("mailbox_id"))
        before = await self.recent(key)
        if not is_mail:
            await self.record_received(request.channel, request.chat_id, request.sender_id or "", getattr(request, "original_user_text", None) or "", metadata)
        # As text, as it is recorded: some channels have numeric ids.
        current = str(metadata["message_id"]) if not is_mail and metadata.get("message_id") else None
        seen = self._shown.get(session, set())
        lines = [line for line in before if _mark(line) not in seen and (current is None or line.get("message_id") != current)]
        marks = {_mark(line) for line in before}
        if current is not None:
            marks.add(current)
        _keep(self._shown, session, marks)
        shown = render_transcript(_bounded(lines), self.me)
        return f"{_HEADING}\n{shown}" if shown else None

    async def recent(self, key: str) -> list[dict[str, Any]]:
        """The last lines of a chat; if nothing is recorded yet, Feishu's own history, if its credentials are configured."""
        try:
            feishu = self._feishu() if key.startswith("feishu:") else None
            if feishu is None:
                return await asyncio.to_thread(self._store.recent, key, self.lines)
            recent = asyncio.to_thread(lambda: self._store.recent_or_feishu(key, self.lines, **feishu))
            return await asyncio.wait_for(recent, _FEISHU_WAIT)
        except TimeoutError:
            logger.warning("Feishu's history of {}: timeout after {} s", key, _FEISHU_WAIT)
            return []
        except MailboxError as error:
            logger.warning("the transcript of {} cannot be read: {}", key, error)
            return []

    def _feishu(self) -> dict[str, str] | None:
        from nanobot.config.loader import load_config

        section = getattr(load_config().channels, "feishu", None)
        get = section.get if isinstance(section, dict) else lambda name: getattr(section, name, None)
        app_id, app_secret = get("appId") or get("app_id"), get("appSecret") or get("app_secret")
        if not app_id or not app_secret:
            return None
        url = self._feishu_url or ("https://open.larksuite.com" if get("domain") == "lark" else "https://open.feishu.cn")
        return {"app_id": app_id, "app_secret": app_secret, "base_url": url}

    async def record_sent(self, channel: str, chat_id: str, content: str, metadata: dict[str, Any]) -> None:
        """Records a message that this bot sent in a group."""
        key = f"{channel}:{chat_id}"
        if content.strip() and (is_group(metadata) or key in self._groups):
            await self._append(key, "assistant", content, self.me, None)

    async def _append(self, key: str, role: str, content: str, sender: str, message_id: Any) -> None:
        try:
            line = {"role": role, "content": content, "sender": sender, "message_id": str(message_id) if message_id else None}
            await asyncio.to_thread(self._store.append, key, line)
        except MailboxError as error:
            logger.warning("the transcript of {} cannot be written: {}", key, error)


def relevance_input(lines: Sequence[dict[str, Any]], me: str) -> list[dict[str, str]]:
    """The input of a relevance check: role, content, and the sender as the core renders it, "you (this agent)" only for the agent's own
    lines."""
    speakers = transcript_speakers(lines, me)
    return [
        {"role": line.get("role") or "user", "content": line.get("content") or "", "sender": speaker}
        for line, speaker in zip(lines, speakers, strict=True)
    ]


def _bounded(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest lines that fit into a turn; a long one is cut and marked."""
    kept: list[dict[str, Any]] = []
    room = _MAX_SHOWN
    for line in reversed(lines):
        content = line.get("content") or ""
        if len(content) > _MAX_LINE:
            line = {**line, "content": f"{content[:_MAX_LINE]} [cut: {len(content)} characters]"}
        room -= len(line.get("content") or "")
        if room < 0:
            break
        kept.append(line)
    return kept[::-1]


def _mark(line: dict[str, Any]) -> Any:
    return line.get("message_id") or (line.get("ts"), line.get("sender"), line.get("content"))


def _keep(memory: OrderedDict[str, Any], key: str, value: Any) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > _MAX_SESSIONS:
        memory.popitem(last=False)
