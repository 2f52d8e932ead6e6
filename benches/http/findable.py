#!/usr/bin/env python3
"""How long after its answer a message can be found by a word of its own, while others send.

    findable.py HOST:PORT KEYS-FILE [RATE] [SECONDS]

KEYS-FILE is what `bench fill` printed. Sends RATE messages a second, to all recipients in turn, and looks for every tenth of a
second's newest word as its recipient until it is found. Prints the rate that was reached and the delays.
"""

import asyncio
import json
import sys
import time


class Connection:
    """One HTTP connection that is kept."""

    def __init__(self, address):
        self.host, self.port = address.rsplit(":", 1)
        self.streams = None

    async def ask(self, method, path, key, body=None):
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.host, int(self.port))
        reader, writer = self.streams
        data = json.dumps(body).encode() if body else b""
        kind = "Content-Type: application/json\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nX-API-Key: {key}\r\n{kind}Content-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        answer = await reader.readexactly(length)
        status = int(head.split()[1])
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:200]}")
        return json.loads(answer)


async def main():
    address, keys = sys.argv[1:3]
    rate, seconds = int((sys.argv[3:] + [1000])[0]), float((sys.argv[4:] + [10])[0])
    pairs = [line.split() for line in open(keys)]
    start, sent, newest, delays = time.monotonic(), 0, None, []

    async def send():
        nonlocal sent, newest
        connection = Connection(address)
        while (now := time.monotonic()) < start + seconds:
            number = sent
            if number > (now - start) * rate:
                await asyncio.sleep(0.001)
                continue
            sent += 1
            from_key, to_key, _, to, _ = pairs[number % len(pairs)]
            word = f"w{number}x"
            await connection.ask("POST", "/messages/send", from_key, {"to": to, "subject": "Load", "content": f"find {word}"})
            newest = (time.monotonic(), to_key, word)

    async def look():
        connection = Connection(address)
        while time.monotonic() < start + seconds:
            await asyncio.sleep(0.1)
            if newest is None:
                continue
            at, key, word = newest
            while not (await connection.ask("GET", f"/search?q={word}", key))["hits"]:
                await asyncio.sleep(0.005)
            delays.append(time.monotonic() - at)

    await asyncio.gather(*(send() for _ in range(64)), look())
    delays.sort()
    print(f"{sent / seconds:.0f} sends a second to {len(pairs)} agents; found after "
          f"p50 {delays[len(delays) // 2]:.3f} s, longest of {len(delays)} {delays[-1]:.3f} s")


asyncio.run(main())
