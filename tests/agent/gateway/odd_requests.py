"""Sends odd requests to whoever listens on a port and says in a word or two what came of each."""

from __future__ import annotations

import asyncio
import ssl
import time

from tests.fakes.stub_engine import StubEngine
from tests.fuzz import strict

QUIET_SECONDS = 0.15  # nothing more comes
PATIENCE_SECONDS = 5.0


class Lane:
    """A server's port and the engine behind it that nobody else uses; one request at a time. `tls`: how it is called."""

    def __init__(self, port: int, engine: StubEngine, tls: ssl.SSLContext | None = None) -> None:
        self.port, self.engine, self.tls = port, engine, tls

    async def outcome(self, data: bytes, expected: str | None) -> str:
        """The answers' statuses ("waits": none, and none comes; "closes": none, and the connection is closed), then how
        many requests have reached the engine: "400", "200 >1". Waits for `expected` as long as it takes; None: until it is quiet."""
        self.engine.seen.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        got = bytearray()
        ended = asyncio.Event()

        async def read() -> None:
            try:
                while piece := await reader.read(65536):
                    got.extend(piece)
            except ConnectionError:
                pass  # a reset is an end too
            ended.set()

        reading = asyncio.create_task(read())
        writer.write(data)
        begun = time.monotonic()
        said, since = "", begun
        while True:
            now = time.monotonic()
            says = self._say(data, bytes(got), ended.is_set())
            if says != said:
                said, since = says, now
            patience = PATIENCE_SECONDS if expected is not None else 3 * QUIET_SECONDS
            settled = now - since > (QUIET_SECONDS if said == expected else patience)
            if settled or (ended.is_set() and said == expected) or now - begun > 2 * PATIENCE_SECONDS:
                break
            await asyncio.sleep(0.01)
        writer.close()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        return said

    def _say(self, data: bytes, got: bytes, ended: bool) -> str:
        asked, _ = strict.requests(data)
        found, _ = strict.answers(got, [m.method for m in asked], ended)
        words = [str(m.status) for m in found if m.complete and m.status >= 200]
        if not words:
            words = ["no HTTP" if got and ended else "closes" if ended else "waits"]
        return " ".join(words) + (f" >{len(self.engine.seen)}" if self.engine.seen else "")
