"""Step of nanobot_run.py: how soon mail reaches the model, and how much of that is ours."""

import asyncio
import os
import statistics
import tempfile
import threading
import time

import agent_mailbox
from agent_mailbox.nanobot.channel import MailboxChannel
from loguru import logger
from nanobot.bus.queue import MessageBus
from nanobot_case import say
from nanobot_gateway import Person

MAILS = int(os.environ.get("MAILS", "30"))


def soon(case, _person):
    """From the mail on disk to the model's request, by turns with what a person says at the websocket of the same gateway, so that
    both meet the same load. On disk means that the sender was told so."""
    probe, person = case.probe, Person(case.c)
    took, sending, own = [], [], []
    for at in range(MAILS):
        begun = time.time()
        probe.send({"to": "c", "text": f"ping:{at}: hello", "subject": "ping"})
        sent = time.time()
        asked = case.model.wait(lambda request: f"ping:{at}:" in request.text, "c is asked")
        took.append(1000 * (asked.at - sent))
        sending.append(1000 * (sent - begun))
        answer = probe.next(60)
        assert answer is not None
        probe.ack(answer["id"])
        begun = time.time()
        person.say(f"pong:{at}: hello")
        asked = case.model.wait(lambda request: f"pong:{at}:" in request.text, "c is asked")
        own.append(1000 * (asked.at - begun))
        person.hears("c answers")
    ours = {kind: asyncio.run(on_the_bus(kind)) for kind in ("message", "task")}
    median, slowest = statistics.median(took), statistics.quantiles(took, n=10)[-1]
    print(
        f"     {MAILS} mails: p50 {median:.1f} ms, p90 {slowest:.1f} ms "
        f"(sending itself: p50 {statistics.median(sending):.1f} ms; "
        f"what a person says at the websocket: p50 {statistics.median(own):.1f} ms, p90 {statistics.quantiles(own, n=10)[-1]:.1f} ms; "
        f"of it ours, until it is on nanobot's bus: a message {ours['message']:.1f} ms, a task {ours['task']:.1f} ms)",
        flush=True,
    )
    if "MAX_MS" in os.environ:
        assert median < float(os.environ["MAX_MS"]), took
    say("from a mail on disk to the model's request")


async def on_the_bus(kind):
    """Returns the median milliseconds from a mail on disk to nanobot's bus: this package's part of the latency."""
    took = []
    logger.disable("agent_mailbox")
    # Work that is under way when the channel stops is completed, and may still write there.
    with tempfile.TemporaryDirectory(prefix="amb-nanobot-", ignore_cleanup_errors=True) as root:
        bus = MessageBus()
        channel = MailboxChannel({"agentId": "bot", "mailboxesRoot": root, "maxConcurrentTasks": MAILS + 1}, bus)
        running = asyncio.create_task(channel.start())
        while not channel.is_running:
            await asyncio.sleep(0.01)
        with agent_mailbox.Mailbox.directory(root, "probe") as probe:
            probe.register()
            for at in range(MAILS):
                sent = []
                draft = {"to": "bot", "text": f"ping {at}", "subject": f"ping {at}", "kind": kind}
                sender = threading.Thread(target=lambda draft=draft, sent=sent: sent.append((probe.send(draft), time.time())))
                sender.start()
                msg = await bus.consume_inbound()
                arrived = time.time()
                await asyncio.to_thread(sender.join)
                took.append(1000 * (arrived - sent[0][1]))
                channel.turn(msg.metadata["mailbox_id"]).is_completed = True
                channel.turn(msg.metadata["mailbox_id"]).ended.set()
        await channel.stop()
        await running
    return statistics.median(took)
