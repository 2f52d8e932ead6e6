"""Lines of JSON over TCP: what people say comes in, what this bot says goes out. Like Feishu, with a session for each topic."""

import asyncio
import json

from nanobot.channels.base import BaseChannel

CHAT = "team"


class GroupChatChannel(BaseChannel):
    name = "groupchat"
    display_name = "Group chat of the test"

    async def start(self):
        self._running, self._streams = True, {}
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self.config["port"])
        while line := await reader.readline():
            said = json.loads(line)
            metadata = {"chat_type": "group", "message_id": said["id"]}
            key = f"groupchat:{CHAT}:{said['topic']}" if said.get("topic") else None
            await self._handle_message(said["sender"], CHAT, said["text"], metadata=metadata, session_key=key)

    async def stop(self):
        self._running = False

    async def send(self, msg):
        if getattr(msg, "event", None) is None and msg.content:
            await self._say(msg.content)

    async def send_delta(self, chat_id, delta, metadata=None, *, stream_id=None, stream_end=False, **_):
        """Used where the configuration says `streaming`: the text is said when its stream ends."""
        self._streams[stream_id] = self._streams.get(stream_id, "") + delta
        if stream_end and (text := self._streams.pop(stream_id)):
            await self._say(text)

    async def _say(self, text):
        self._writer.write((json.dumps({"text": text}) + "\n").encode())
        await self._writer.drain()
