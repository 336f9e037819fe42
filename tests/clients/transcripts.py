"""What OpenAI's clients and curl say to each refusal of the gateway: `python -m tests.clients.transcripts`, as a table in
Markdown. A client that cannot be had is left out by name."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import uvloop

from tests.clients.officials import Curl, JavaScript, Python, find_javascript
from tests.clients.scenes import SCENES, play, until_ready
from tests.fakes.gateway_rig import Rig


async def main(clients: list[Any]) -> None:
    async with Rig(body_limit=1_000_000) as rig:
        for scene in SCENES:
            print(f"\n### {scene.name}")
            for client in clients:
                _line(client, await play(rig, scene, client))
        print("\n### loading; ready in 3 s, which Retry-After says (two retries)")
        for client in clients:
            _line(client, await until_ready(rig, client, 3.0))
        print("\n### loading; ready in 300 s, which Retry-After says (two retries; curl: none, it would wait)")
        for client in clients:
            _line(client, await until_ready(rig, client, 300.0, 0 if client.name == "curl" else 2))


def _line(client: Any, said: Any) -> None:
    print(f"- {client.name}: {said}", flush=True)


if __name__ == "__main__":
    with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        chosen: list[Any] = [Python()]
        package = find_javascript()
        if isinstance(package, str):
            print(f"OpenAI's JavaScript client is left out: {package}")
        else:
            chosen.append(stack.enter_context(JavaScript(package)))
        runner.run(main([*chosen, Curl()]))
