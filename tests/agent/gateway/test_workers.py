"""Several worker processes of one gateway: shared work, exact counts, one that dies, limits over all of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest

from tests.fakes.gateway_node import Node, go
from tests.fakes.gateway_rig import Rig, request, secret
from tests.fakes.stub_engine import stream_for_ever
from tests.parts import pid_alive

pytestmark = pytest.mark.system


def test_workers_share_the_work_and_one_that_dies_is_started_again(node: Node) -> None:
    async def test() -> None:
        parent = node.gateway(SLOTSERVE_GATEWAY_WORKERS="2")
        await node.up(2)
        for _ in range(30):
            assert (await node.ask()).status == 200
        await node.counted(30)
        await node.alive(2)
        victim = min(link.pid for link in node.agent._links)
        os.kill(victim, signal.SIGKILL)
        await Rig.until(lambda: node.agent.connected == 1)
        for _ in range(10):
            assert (await node.ask()).status == 200
        await node.up(2)
        assert victim not in {link.pid for link in node.agent._links}
        await node.counted(40)  # also the dead one's
        pids = [link.pid for link in node.agent._links]
        parent.signal(signal.SIGTERM)
        assert await asyncio.to_thread(parent.wait, 20) == 0
        assert not any(map(pid_alive, pids))
        assert "worker ended, started again" in parent.output()
        assert "Traceback" not in parent.output()

    go(node, test)


def test_workers_end_with_the_process_above_them(node: Node) -> None:
    async def test() -> None:
        parent = node.gateway(SLOTSERVE_GATEWAY_WORKERS="2")
        await node.up(2)
        pids = [link.pid for link in node.agent._links]
        parent.signal(signal.SIGKILL)
        await Rig.until(lambda: not any(map(pid_alive, pids)), 10)

    go(node, test)


def test_barriers_and_an_agents_restart_with_two_workers(node: Node) -> None:
    async def test() -> None:
        node.engine.behaviour = stream_for_ever
        node.gateway(SLOTSERVE_GATEWAY_WORKERS="2")
        await node.up(2)
        streams = [await node.stream() for _ in range(12)]
        await Rig.until(lambda: node.agent.in_flight("main") == 12)
        await node.agent.close_server()
        for reader, _ in streams:
            await asyncio.wait_for(reader.readuntil(b"\n\n"), 20)
        streams += [await node.stream() for _ in range(2)]
        node.agent = node.new_agent()
        await node.start_agent()
        assert await node.agent.close("main") == 14, "nothing is zero, or less than it is, before all have said so"
        for reader, writer in streams[:5]:
            writer.close()
            del reader
        await Rig.until(lambda: node.agent.in_flight("main") == 9)
        node.agent.cut("main", 5)
        await asyncio.wait_for(node.agent.wait_drained("main"), 20)
        for _, writer in streams:
            writer.close()

    go(node, test)


def test_the_limit_holds_over_two_workers_and_over_a_restart(node: Node) -> None:
    async def test() -> None:
        node.engine.behaviour = stream_for_ever
        node.gateway(SLOTSERVE_GATEWAY_WORKERS="2")
        await node.up(2)
        streams = []
        for number in range(3):
            streams.append(await node.stream())
            await node.all_know(number + 1)
        for _ in range(6):
            answer = await node.ask()
            assert (answer.status, answer.code) == (429, "too_many_requests")
        node.gateway()
        await node.up(3)
        await node.all_know(3)
        assert (await node.ask()).status == 429
        streams[0][1].close()
        await node.all_know(2)
        streams.append(await node.stream())
        for _, writer in streams:
            writer.close()
        await Rig.until(lambda: node.agent.in_flight("main") == 0)

    go(node, test, limits={"main": (0, 3)}, gateway_linger_seconds=30)


def test_log_lines_of_workers_stay_whole_and_tell_no_secrets(node: Node) -> None:
    async def test() -> None:
        node.gateway(SLOTSERVE_GATEWAY_WORKERS="2", SLOTSERVE_LOG_FORMAT="json")
        await node.up(2)
        body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "grandmother's maiden name"}]})
        data = request("/v1/chat/completions?secret=query", body.encode())
        await asyncio.gather(*(node.ask(data) for _ in range(100)))
        await node.ask(request("/v1/completions", b'{"model":"auto","prompt":"grandmother"}', None))
        await Rig.until(lambda: node.children[0].output().count('"agent.gateway.access"') == 101)
        text = node.children[0].output()
        lines = [json.loads(x) for x in text.splitlines() if '"agent.gateway.access"' in x]
        assert sum(1 for x in lines if x["outcome"] == "ok") == 100
        assert {"time", "id", "status", "channel", "model", "key", "seconds", "bytes_in", "bytes_out"} <= set(lines[0])
        for never in ("grandmother", secret("tomas"), "sk-ss", "engine-secret", "secret=query", "hello"):
            assert never not in text

    go(node, test)
