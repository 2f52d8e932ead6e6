"""An office that cannot be used now, or refuses."""

from __future__ import annotations

from agent_mailbox import NotAllowedError, QuotaError
from agent_mailbox.nanobot import presence
from agent_mailbox.nanobot.channel import MailboxChannel
from conftest import until
from nanobot.bus.queue import MessageBus


def test_mail_is_released_and_claimed_again_after_a_temporary_error(gateway, ann, run):
    async def body():
        async with gateway() as bot:
            planner, plan, calls = bot.channel.listener.planner, bot.channel.listener.planner.plan, []

            async def refused_once(mail):
                calls.append(mail["id"])
                if len(calls) == 1:
                    raise QuotaError("too many requests", code="too_many_requests", retry_after=0.01, may_succeed_later=True)
                return await plan(mail)

            planner.plan = refused_once
            sent = ann.send({"to": "bot", "text": "how are you?", "subject": "Hello"})
            answer = await until(lambda: ann.next(0))
            assert (answer["reply_to"], len(bot.turns)) == (sent["message_id"], 1)
            assert calls == [sent["message_id"]] * 2

    run(body)


def test_mail_is_read_as_a_message_after_a_permanent_error(gateway, ann, run):
    async def body():
        async with gateway() as bot:

            async def refused(_mail):
                raise NotAllowedError("this is not yours", code="forbidden")

            bot.channel.listener.planner.plan = refused
            ann.send({"to": "bot", "text": "how are you?", "subject": "Hello"})
            assert (await until(lambda: ann.next(0)))["parts"] == [{"type": "text", "text": "fine"}]

    run(body)


def test_a_part_that_the_office_refuses_does_not_block_others(gateway, ann, run):
    async def body():
        async with gateway() as bot:

            async def refused(_mail):
                raise NotAllowedError("this is not yours", code="forbidden")

            task = bot.channel.box.mailbox.send({"to": "ann", "text": "do", "kind": "task"})["task"]["id"]
            bot.channel.listener.planner._ours = refused
            ann.set_task_state(task, "working", "[part 1 of 2]\nx")
            ann.send({"to": "bot", "text": "and how are you?", "subject": "Hello"})
            answered = await until(lambda: next((mail for mail in iter(lambda: ann.next(0), None) if mail.get("reply_to")), None))
            assert answered["parts"] == [{"type": "text", "text": "fine"}]

    run(body)


def test_a_channel_waits_for_an_unavailable_server(tmp_path, run):
    async def body():
        section = {"agentId": "bot", "serverUrl": "http://127.0.0.1:9", "apiKey": "amb_none"}
        channel = MailboxChannel(section, MessageBus())
        tries = []
        channel._retry.back_off = lambda what, error, failures: _stop_after(channel, tries, what)
        await channel.start()
        assert tries == ["cannot open the mailbox"] * 2

    async def _stop_after(channel, tries, what):
        tries.append(what)
        if len(tries) == 2:
            channel._retry.stopped.set()

    run(body)


def test_claims_are_renewed_during_a_turn(gateway, ann, run, monkeypatch):
    monkeypatch.setattr(presence, "LEASE", 0.2)
    renewed = []

    async def body():
        stuck = gateway()
        stuck.bus.consume_inbound = lambda: stuck.channel._retry.stopped.wait()
        async with stuck as bot:
            box, renew = bot.channel.box, bot.channel.box.renew

            async def noted(*ids, lease):
                renewed.append(ids)
                await renew(*ids, lease=lease)

            box.renew = noted
            sent = ann.send({"to": "bot", "text": "this takes long"})
            await until(lambda: len(renewed) > 2)
            assert set(renewed) == {(sent["message_id"],)}

    run(body)
