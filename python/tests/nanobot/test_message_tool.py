"""nanobot's own tool ``message``, which can address peers too."""

from __future__ import annotations

from agent_mailbox import Mailbox
from conftest import until
from nanobot.bus.events import InboundMessage, OutboundMessage


def peer(root, name):
    mailbox = Mailbox.directory(root, name)
    mailbox.register()
    return mailbox


def test_a_relayed_message_continues_the_hops_of_the_mail(gateway, ann, root, run):
    ben = peer(root, "ben")

    async def body():
        async def says(_msg):
            assert "sent" in await bot.message_tool.execute("please look", channel="mailbox", chat_id="ben")
            return "I asked ben"

        bot = gateway(says)
        async with bot:
            ann.send({"to": "bot", "text": "who knows?"})
            passed_on = await until(lambda: ben.next(0))
            assert (passed_on["ttl"], passed_on["trace"]) == (1, ["ann", "bot"])

    run(body)
    ben.close()


def test_the_model_sees_that_a_loop_is_refused(gateway, ann, root, run):
    said, cai = [], peer(root, "cai")

    async def body():
        async def says(_msg):
            said.append(await bot.message_tool.execute("round again", channel="mailbox", chat_id="ann"))

        bot = gateway(says)
        async with bot:
            ann.send({"to": "cai", "text": "who knows?"})
            question = cai.next(5)
            cai.send({"to": "bot", "text": "you?", "parent": question["id"]})
            await until(lambda: said)
            assert "Error" in said[0] and "already handled" in said[0]
            assert ann.next(0) is None

    run(body)
    cai.close()


def test_a_message_to_the_sender_is_part_of_the_answer(gateway, ann, run):
    async def body():
        async def says(_msg):
            await bot.message_tool.execute("one moment", channel="mailbox", chat_id="ann")
            return "done"

        bot = gateway(says)
        async with bot:
            ann.send({"to": "bot", "text": "how are you?"})
            answer = await until(lambda: ann.next(0))
            assert answer["parts"] == [{"type": "text", "text": "one moment\n\ndone"}] and answer["metadata"] == {"automatic": True}

    run(body)


def test_an_answer_to_a_message_from_a_chat_returns_to_it(gateway, ann, run):
    async def body():
        async def says(msg):
            if msg.channel == "websocket" and "ask ann" in msg.content:
                await bot.message_tool.execute("a question", channel="mailbox", chat_id="ann")
            return "fine"

        bot = gateway(says)
        async with bot:
            await bot.bus.publish_inbound(InboundMessage("websocket", "person", "c1", "ask ann"))
            question = await until(lambda: ann.next(0))
            ann.send({"to": "bot", "text": "an answer", "reply_to": question["id"]})
            await until(lambda: len(bot.outbound) == 2)
            assert (bot.turns[1].channel, bot.turns[1].chat_id) == ("websocket", "c1")

    run(body)


def test_a_message_after_its_turn_continues_the_hops(gateway, ann, run):
    """A subagent's result, or a reminder: nanobot sends it by itself, long after the mail had its turn."""

    async def body():
        async with gateway() as bot:
            sent = ann.send({"to": "bot", "text": "think about it", "subject": "Plan"})
            await until(lambda: ann.next(0))
            await until(lambda: not bot.channel.listener.turns)
            await bot.bus.publish_outbound(OutboundMessage("mailbox", "ann", "I have thought"))
            late = await until(lambda: ann.next(0))
            assert (late["reply_to"], late["ttl"], late["metadata"]) == (sent["message_id"], 1, {"automatic": True})

    run(body)


def test_the_hook_is_removed_when_the_channel_stops(gateway, run):
    async def body():
        bot = gateway()
        async with bot:
            assert "put" in vars(bot.bus.outbound)
        assert "put" not in vars(bot.bus.outbound)

    run(body)
