"""A peer of the benchmarks: the gateway's job as one writes it with aiohttp. Keys, the model's name put right, the answer
passed on as it comes, counts by channel, and a line a request.

python -m tests.bench.proxy_aiohttp PORT ENGINE_SOCKET KEY
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sys
import time
from collections import Counter

import aiohttp
import uvloop
from aiohttp import web

log = logging.getLogger("access")
DROPPED = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "host",
    "authorization",
    "accept-encoding",
}
MODEL = "bench-model"


class Proxy:
    """One engine behind a Unix socket."""

    def __init__(self, engine: str, key: str) -> None:
        self._keys = {hashlib.sha256(key.encode()).hexdigest(): "bench"}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(engine, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        self._in_flight: Counter[str] = Counter()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        begun = time.monotonic()
        presented = request.headers.get("Authorization", "").removeprefix("Bearer ")
        who = self._keys.get(hashlib.sha256(presented.encode()).hexdigest())
        if who is None:
            return web.json_response({"error": {"message": "An API key is needed."}}, status=401)
        content = json.loads(await request.read())
        content["model"] = MODEL
        headers = {k: v for k, v in request.headers.items() if k.lower() not in DROPPED}
        self._in_flight["main"] += 1
        size = 0
        try:
            async with self._session.post(
                f"http://engine{request.path_qs}", data=json.dumps(content).encode(), headers=headers
            ) as answer:
                kept = {k: v for k, v in answer.headers.items() if k.lower() not in DROPPED}
                response = web.StreamResponse(status=answer.status, headers={**kept, "X-SlotServe-Channel": "main"})
                if answer.content_length is not None:
                    response.content_length = answer.content_length
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    size += len(piece)
                    await response.write(piece)
                await response.write_eof()
                return response
        finally:
            self._in_flight["main"] -= 1
            log.info("who=%s path=%s bytes=%s seconds=%.4f", who, request.path, size, time.monotonic() - begun)


async def main(port: int, engine: str, key: str) -> None:
    proxy = Proxy(engine, key)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", proxy.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop_runner:
        loop_runner.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
