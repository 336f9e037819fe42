"""A peer of the benchmarks: the gateway's job as one writes it with Starlette and httpx, served by uvicorn with uvloop and
httptools. Keys, the model's name put right, the answer passed on as it comes, counts by channel, and a line a request.

python -m tests.bench.proxy_starlette PORT ENGINE_SOCKET KEY
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

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
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=engine, limits=limits), timeout=None)
        self._in_flight: Counter[str] = Counter()

    async def handle(self, request: Request) -> Response:
        begun = time.monotonic()
        presented = request.headers.get("authorization", "").removeprefix("Bearer ")
        who = self._keys.get(hashlib.sha256(presented.encode()).hexdigest())
        if who is None:
            return JSONResponse({"error": {"message": "An API key is needed."}}, status_code=401)
        content = json.loads(await request.body())
        content["model"] = MODEL
        headers = {k: v for k, v in request.headers.items() if k not in DROPPED}
        self._in_flight["main"] += 1
        outgoing = self._client.build_request(
            "POST", f"http://engine{request.url.path}", content=json.dumps(content).encode(), headers=headers
        )
        answer = await self._client.send(outgoing, stream=True)

        async def pieces() -> AsyncIterator[bytes]:
            size = 0
            try:
                async for piece in answer.aiter_raw():
                    size += len(piece)
                    yield piece
            finally:
                await answer.aclose()
                self._in_flight["main"] -= 1
                log.info("who=%s path=%s bytes=%s seconds=%.4f", who, request.url.path, size, time.monotonic() - begun)

        kept = {k: v for k, v in answer.headers.items() if k not in DROPPED or k == "content-length"}
        return StreamingResponse(pieces(), answer.status_code, {**kept, "x-slotserve-channel": "main"})


def main(port: int, engine: str, key: str) -> None:
    app = Starlette(routes=[Route("/v1/chat/completions", Proxy(engine, key).handle, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False, log_config=None)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
