"""The section ``channels.mailbox``."""

from __future__ import annotations

import json

import pytest
from agent_mailbox.nanobot.channel import MailboxChannel
from agent_mailbox.nanobot.config import MailboxConfig


def test_the_defaults_are_those_of_the_design():
    section = MailboxChannel.default_config()
    wanted = {
        "enabled": False,
        "agentId": "",
        "description": "",
        "capabilities": [],
        "allowFrom": ["*"],
        "maxConcurrentTasks": 3,
        "pollInterval": 5.0,
        "mailboxesRoot": "~/.nanobot/mailboxes",
    }
    assert {key: section[key] for key in wanted} == wanted


@pytest.mark.parametrize("section", [{"agentId": "x", "allowFrom": ["ann"]}, {"agent_id": "x", "allow_from": "ann"}])
def test_keys_may_be_written_either_way(section):
    config = MailboxConfig.parse(section)
    assert (config.agent_id, config.allow_from) == ("x", ["ann"])


def test_a_key_of_the_wrong_kind_is_named():
    with pytest.raises(ValueError, match="channels.mailbox.maxConcurrentTasks is a number above 0"):
        MailboxConfig.parse({"maxConcurrentTasks": "many"})
    assert "secret" not in repr(MailboxConfig.parse({"apiKey": "secret"}))


def test_the_key_that_amb_stored_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("MAILBOX_API_KEY", raising=False)
    section = {"agentId": "bot", "serverUrl": "http://127.0.0.1:8000"}
    assert MailboxConfig.parse(section).key == ""
    (tmp_path / "amb").mkdir()
    (tmp_path / "amb/keys.json").write_text(json.dumps({"http://127.0.0.1:8000/": {"bot": "amb_1"}}))
    assert MailboxConfig.parse(section).key == "amb_1"
