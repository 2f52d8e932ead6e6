"""Group chats: what is recorded, and what a turn is shown of it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from agent_mailbox import Transcripts
from agent_mailbox.nanobot.config import MailboxConfig
from agent_mailbox.nanobot.transcripts import GroupTranscripts, relevance_input


@pytest.fixture
def record(tmp_path):
    return MailboxConfig(agent_id="bot", transcripts=True, transcripts_root=str(tmp_path), feishu_url="http://127.0.0.1:9")


def request(text, id, *, chat_type="group", channel="feishu", session="feishu:oc_1:topic", **more):
    metadata = {"chat_type": chat_type, "message_id": id, **more}
    return SimpleNamespace(
        channel=channel, chat_id="oc_1", session_key=session, metadata=metadata, sender_id="ou_1", original_user_text=text
    )


def test_transcripts_are_off_by_default():
    assert GroupTranscripts.of(MailboxConfig(agent_id="bot"), None) is None


def test_a_message_received_by_two_bots_is_recorded_once_by_chat(record, tmp_path, run):
    async def body():
        one, other = GroupTranscripts(record, None), GroupTranscripts(record, None)
        for bot in (one, other):
            assert await bot.context(request("continue", "om_1")) is None
            assert await bot.context(request("a secret", "om_2", chat_type="p2p")) is None
        await one.record_sent("feishu", "oc_1", "tests pass", {"chat_type": "group"})
        lines = Transcripts(tmp_path).recent("feishu:oc_1")
        assert [(line["role"], line["sender"], line["content"]) for line in lines] == [
            ("user", "ou_1", "continue"),
            ("assistant", "bot", "tests pass"),
        ]

    run(body)


def test_a_turn_shows_new_lines_once(record, tmp_path, run):
    async def body():
        bot, store = GroupTranscripts(record, None), Transcripts(tmp_path)
        store.append("feishu:oc_1", {"role": "assistant", "content": "b says Friday", "sender": "b"})
        first = await bot.context(request("and you?", "om_1"))
        assert 'who="agent b"' in first and "b says Friday" in first and "and you?" not in first
        assert await bot.context(request("hello?", "om_2")) is None
        store.append("feishu:oc_1", {"role": "assistant", "content": "b says Monday", "sender": "b"})
        again = await bot.context(request("well?", "om_3"))
        assert "b says Monday" in again and "b says Friday" not in again
        other_topic = await bot.context(request("what now?", "om_4", session="feishu:oc_1:other"))
        assert "b says Friday" in other_topic and "and you?" in other_topic

    run(body)


def test_the_transcript_in_a_turn_is_bounded(record, tmp_path, run):
    async def body():
        store = Transcripts(tmp_path)
        for at in range(15):
            store.append("feishu:oc_1", {"role": "user", "content": f"{at} " + "long " * 2_000, "sender": "ou_2"})
        shown = await GroupTranscripts(record, None).context(request("so?", "om_1"))
        assert len(shown) < 25_000 and "[cut: " in shown and "14 long" in shown

    run(body)


def test_mail_in_a_group_conversation_is_not_recorded(record, tmp_path, run):
    async def body():
        await GroupTranscripts(record, None).context(request("[Mailbox] New message", None, mailbox_id="m1"))
        assert Transcripts(tmp_path).recent("feishu:oc_1") == []

    run(body)


def test_the_input_of_a_relevance_check_tells_the_bot_from_the_others(record, tmp_path):
    store = Transcripts(tmp_path)
    store.append("feishu:oc_1", {"role": "assistant", "content": "done", "sender": "bot"})
    store.append("feishu:oc_1", {"role": "user", "content": "I am the bot", "sender": "bot"})
    store.append("feishu:oc_1", {"role": "assistant", "content": "me too", "sender": "writer"})
    store.append("feishu:oc_1", {"role": "user", "content": "so am I", "sender": "you (this agent)"})
    assert relevance_input(store.recent("feishu:oc_1"), "bot") == [
        {"role": "assistant", "content": "done", "sender": "you (this agent)"},
        {"role": "user", "content": "I am the bot", "sender": "user bot"},
        {"role": "assistant", "content": "me too", "sender": "agent writer"},
        {"role": "user", "content": "so am I", "sender": "user with a misleading name"},
    ]


class Feishu(BaseHTTPRequestHandler):
    """Answers as Feishu's reference says: a token, and one page of one message."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.say({"code": 0, "msg": "ok", "tenant_access_token": "t-1", "expire": 7200})

    def do_GET(self):
        body = {"content": json.dumps({"text": "what Feishu remembers"})}
        item = {"message_id": "om_0", "msg_type": "text", "create_time": "1794771673620", "deleted": False, "chat_id": "oc_1"}
        item |= {"sender": {"id": "ou_9", "id_type": "open_id", "sender_type": "user"}, "body": body}
        self.say({"code": 0, "msg": "success", "data": {"has_more": False, "page_token": "", "items": [item]}})

    def say(self, answer):
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def test_feishus_history_is_the_fallback_for_an_empty_transcript(record, tmp_path, run, monkeypatch):
    from nanobot.config import loader

    server = HTTPServer(("127.0.0.1", 0), Feishu)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"channels": {"feishu": {"enabled": True, "appId": "cli_1", "appSecret": "s"}}}))
    monkeypatch.setattr(loader, "_current_config_path", config)

    async def body():
        here = MailboxConfig(agent_id="bot", transcripts=True, transcripts_root=str(tmp_path / "t"), feishu_url=f"http://127.0.0.1:{server.server_port}")
        shown = await GroupTranscripts(here, None).context(request("go on", "om_1"))
        assert "what Feishu remembers" in shown and 'who="user ou_9"' in shown

    run(body)
    server.shutdown()


def test_numeric_message_ids_are_shown_once(record, run):
    async def body():
        bot = GroupTranscripts(record, None)
        for id, text in ((1, "hello"), (2, "again"), (3, "and again")):
            assert await bot.context(request(text, id, channel="telegram", session="telegram:oc_1")) is None

    run(body)
