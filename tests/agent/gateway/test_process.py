"""The gateway as a process of its own: its sockets, its signals, its memory, and life without an agent."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.gateways import Gateways
from tests.fakes.gateway_place import RUN, Place
from tests.fakes.gateway_rig import Rig, chat, read_answer, secret
from tests.fakes.stub_engine import stream_for_ever
from tests.parts import start, wait_until

pytestmark = pytest.mark.system


def test_serves_from_what_the_agent_left_and_is_small(place: Place) -> None:
    async def test() -> None:
        await place.engine.start()
        place.save()
        with place.gateway() as child:
            for _ in range(50):
                reader, writer = await place.dial(chat())
                assert (await read_answer(reader)).status == 200
                writer.close()
            status = Path(f"/proc/{child.pid}/status").read_text()
            resident = int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) / 1024  # type: ignore[union-attr]
            assert resident < 60, f"{resident:.0f} MB"
            log = place.log.read_text()
        log = place.log.read_text()
        assert "outcome=ok" in log
        assert "sk-ss" not in log
        await place.engine.stop()

    asyncio.run(test())


def test_sigterm_accepts_nothing_more_and_finishes_what_runs(place: Place) -> None:
    async def test() -> None:
        await place.engine.start()
        place.engine.behaviour = stream_for_ever
        place.save()
        with place.gateway() as child:
            idle_reader, idle_writer = await place.dial(b"")
            reader, writer = await place.dial(chat(True))
            await reader.readuntil(b"\r\n\r\n")
            child.signal(signal.SIGTERM)
            assert await asyncio.wait_for(idle_reader.read(), 20) == b""
            with pytest.raises(OSError):
                await place.dial(b"")
            for _ in range(20):
                assert await asyncio.wait_for(reader.readuntil(b"\n\n"), 20)
            assert child.alive()
            place.engine.seen[-1].writer.transport.abort()
            await asyncio.wait_for(reader.read(), 20)
            assert await asyncio.to_thread(child.wait, 20) == 0
            idle_writer.close()
            writer.close()
        await place.engine.stop()

    asyncio.run(test())


def test_linger_ends(place: Place) -> None:
    async def test() -> None:
        await place.engine.start()
        place.engine.behaviour = stream_for_ever
        place.save()
        with place.gateway(SLOTSERVE_GATEWAY_LINGER_SECONDS="0.3") as child:
            reader, writer = await place.dial(chat(True))
            await reader.readuntil(b"\r\n\r\n")
            child.signal(signal.SIGTERM)
            assert await asyncio.to_thread(child.wait, 20) == 0
            writer.close()
        await place.engine.stop()

    asyncio.run(test())


def test_linger_comes_with_the_table_and_a_stream_is_told_at_its_end(place: Place) -> None:
    async def test() -> None:
        await place.engine.start()
        place.engine.behaviour = stream_for_ever
        place.save(gateway_linger_seconds=0.2)
        with place.gateway() as child:
            reader, writer = await place.dial(chat(True))
            await reader.readuntil(b"\r\n\r\n")
            child.signal(signal.SIGTERM)
            rest = await asyncio.wait_for(reader.read(), 20)
            assert b'"code":"restarting"' in rest
            assert rest.endswith(b"\r\n0\r\n\r\n")
            assert await asyncio.to_thread(child.wait, 20) == 0
            writer.close()
        await place.engine.stop()

    asyncio.run(test())


def test_metrics_at_an_address_of_their_own(place: Place) -> None:
    path = place.folder / "metrics.sock"

    def get(socket: Path, url: str, **headers: str) -> httpx.Response:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket))) as client:
            return client.get(f"http://g{url}", headers=headers)

    place.save()
    with place.gateway(SLOTSERVE_METRICS_ADDRESS=f"unix:{path}"):
        assert "slotserve_gateway_in_flight" in get(path, "/metrics").text
        assert get(path, "/v1/models", **{"x-api-key": secret("maya")}).status_code == 404, "nothing else is there"
        there = place.folder / "gateway.sock"
        assert get(there, "/metrics").status_code == 401
        assert get(there, "/metrics", **{"x-api-key": secret("root")}).status_code == 404
        assert get(there, "/v1/models", **{"x-api-key": secret("maya")}).status_code == 200
    place.listen("127.0.0.1:0")
    with place.gateway(SLOTSERVE_METRICS_ADDRESS="nonsense") as child:
        assert child.wait(20) == 1
        assert "SLOTSERVE_METRICS_ADDRESS: 'nonsense' is not host:port" in place.log.read_text()


def test_usage_outlives_a_gateway_that_ends_while_the_agent_is_away(place: Place) -> None:
    rows: list[dict[str, Any]] = []

    async def ask() -> None:
        reader, writer = await place.dial(chat())
        assert (await read_answer(reader)).status == 200
        writer.close()

    async def test() -> None:
        await place.engine.start()
        place.save()
        saved = place.folder / "state" / "gateway"
        with place.gateway() as child:
            await ask()
            child.signal(signal.SIGTERM)
            assert await asyncio.to_thread(child.wait, 20) == 0
        (left,) = saved.glob("usage-*.json")
        assert left.stat().st_mode & 0o777 == 0o600
        (saved / "usage-broken.json").write_text("{")
        agent = Gateways(place.folder / "state", place.folder / "state" / "run", rows.extend)
        await agent.start()
        with place.gateway() as child:
            await ask()
            async with asyncio.timeout(20):
                while len(rows) < 2:
                    await asyncio.sleep(0.01)
            await ask()  # the last row goes out at the end, not half a second later
            child.signal(signal.SIGTERM)
            assert await asyncio.to_thread(child.wait, 20) == 0
            assert len(rows) == 3
        await agent.close_server()
        assert len({r["id"] for r in rows}) == 3
        assert [p.name for p in saved.glob("usage-*.json")] == ["usage-broken.json"], "what cannot be read stays"
        await place.engine.stop()

    asyncio.run(test())


def test_usage_outlives_a_gateway_that_is_killed(place: Place) -> None:
    """Whatever was answered is accounted for, and once only, whenever the kill comes."""
    rows: list[dict[str, Any]] = []

    async def ask(times: int) -> None:
        for _ in range(times):
            reader, writer = await place.dial(chat())
            assert (await read_answer(reader)).status == 200
            writer.close()

    async def test() -> None:
        await place.engine.start()
        place.save()
        saved = place.folder / "state" / "gateway"
        with place.gateway() as child:
            await ask(3)
            child.signal(signal.SIGKILL)
            await asyncio.to_thread(child.wait, 20)
        (left,) = saved.glob("rows-*.jsonl")
        assert left.stat().st_mode & 0o777 == 0o600
        with left.open("a") as file:
            file.write('["torn')
        with place.gateway() as child:  # it takes up what was left, and is killed as well
            await ask(2)
            assert not left.exists()
            child.signal(signal.SIGKILL)
            await asyncio.to_thread(child.wait, 20)
        agent = Gateways(place.folder / "state", place.folder / "state" / "run", rows.extend)
        await agent.start()
        with place.gateway() as child:
            await ask(2)
            async with asyncio.timeout(10):
                while len(rows) < 7:
                    await asyncio.sleep(0.01)
                while any(path.stat().st_size for path in saved.glob("rows-*.jsonl")):
                    await asyncio.sleep(0.01)
            child.signal(signal.SIGKILL)  # what was taken is not told again
            await asyncio.to_thread(child.wait, 20)
        with place.gateway() as child:
            await ask(1)
            async with asyncio.timeout(10):
                while len(rows) < 8:
                    await asyncio.sleep(0.01)
            child.signal(signal.SIGTERM)
            assert await asyncio.to_thread(child.wait, 20) == 0
        await agent.close_server()
        assert len({r["id"] for r in rows}) == len(rows) == 8
        assert {r["model"] for r in rows} == {rows[0]["model"]}
        assert not list(saved.glob("rows-*")), "an orderly end leaves none"
        await place.engine.stop()

    asyncio.run(test())


def test_agent_killed_and_started_again_is_invisible_to_a_stream(place: Place) -> None:
    async def test() -> None:
        await place.engine.start()
        place.engine.behaviour = stream_for_ever
        agent = Gateways(place.folder / "state", place.folder / "state" / "run")
        await agent.start()
        agent.set_keys(Rig.keys())
        agent.publish("main", place.entry())
        process = start([sys.executable, "-c", RUN], place.log, place.env)
        try:
            await Rig.until(lambda: agent.connected)
            await agent.close("none")  # answered behind the table
            reader, writer = await place.dial(chat(True))
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            await agent.close_server()
            (place.folder / "state" / "run" / "agent.sock").unlink(missing_ok=True)
            for _ in range(20):
                await asyncio.wait_for(reader.readuntil(b"\n\n"), 20)
            second, second_writer = await place.dial(chat(True))
            assert b"200 OK" in await second.readuntil(b"\r\n\r\n")
            agent = Gateways(place.folder / "state", place.folder / "state" / "run")
            await agent.start()
            assert await agent.close("main") == 2, "counts from before the restart are known before zero means zero"
            agent.cut("main", 5)
            await asyncio.wait_for(agent.wait_drained("main"), 20)
            for each in (reader, second):
                assert b'"code":"model_switching"' in await asyncio.wait_for(each.read(), 20)
            writer.close()
            second_writer.close()
        finally:
            process.stop()
        await agent.close_server()
        await place.engine.stop()

    asyncio.run(test())


def test_engine_killed_in_mid_stream(place: Place) -> None:
    async def test() -> None:
        place.save()
        script = (
            "import asyncio, sys\nfrom pathlib import Path\n"
            "from tests.fakes.stub_engine import StubEngine, stream_for_ever\n"
            "async def main():\n"
            "    engine = StubEngine(Path(sys.argv[1]))\n"
            "    engine.behaviour = stream_for_ever\n"
            "    await engine.start()\n"
            "    await asyncio.Event().wait()\n"
            "asyncio.run(main())\n"
        )
        engine = start([sys.executable, "-c", script, str(place.engine.path)], place.folder / "e.log", place.env)
        try:
            wait_until(place.engine.path.exists, 10, "the engine listens")
            with place.gateway():
                reader, writer = await place.dial(chat(True))
                await reader.readuntil(b"\n\n")
                engine.signal(signal.SIGKILL)
                rest = await asyncio.wait_for(reader.read(), 20)
                assert not rest.endswith(b"0\r\n\r\n"), "no clean end"
                writer.close()
                reader, writer = await place.dial(chat(True))
                answer = await read_answer(reader)
                assert answer.status in (502, 503)  # a connection that was still in its queue is reset
                assert answer.code == "model_failed"
                writer.close()
        finally:
            engine.stop()

    asyncio.run(test())


def test_no_node_file(place: Place) -> None:
    (place.folder / "node.toml").unlink()
    done = subprocess.run([sys.executable, "-c", RUN], env=place.env, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert "no such file" in done.stderr


def test_saved_files_that_are_broken_are_said(place: Place) -> None:
    place.save()
    (place.folder / "state/gateway/table.json").write_text('{"type": "table", "channels": [{}]}')
    (place.folder / "state/gateway/keys.json").write_text("")
    with place.gateway():
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(place.folder / "gateway.sock"))) as client:
            answer = client.get("http://g/v1/models", headers={"Authorization": "Bearer sk-ss-tomas"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    log = place.log.read_text()
    assert log.count("cannot be used") == 2
    assert "Traceback" not in log


def test_it_takes_as_many_open_files_as_it_may_have(place: Place) -> None:
    place.save()
    script = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))\n" + RUN
    process = start([sys.executable, "-c", script], place.log, place.env)
    try:
        wait_until(place.answers, 10, "the gateway answers")
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        assert re.search(r"Max open files\s+4096\s+4096", limits)
    finally:
        process.stop()
