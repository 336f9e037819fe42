"""The agent's side: table and keys reach every gateway, a barrier counts all of them, nobody gone is waited for long."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agent.gateways import Gateways
from tests.fakes.gateway_rig import Rig

ENTRY = {"name": "main", "open": True, "phase": "ready", "serving": None, "steps": []}
KEYS = {"ab" * 32: {"id": "k1", "user_id": "u1", "user_name": "U", "role": "user", "expires_at_ms": None}}


class FakeGateway:
    """Speaks the socket's language; answers barriers only when told."""

    def __init__(self, pid: int | None = None, gateway_id: str = "g1") -> None:
        self.pid, self.id = os.getpid() if pid is None else pid, gateway_id
        self.heard: list[dict[str, Any]] = []

    async def dial(self, folder: Path, counts: dict[str, int] | None = None) -> None:
        self.reader, self.writer = await asyncio.open_unix_connection(str(folder / "run" / "agent.sock"))
        self.say({"type": "hello", "pid": self.pid, "gateway_id": self.id, "version": "0"})
        self.say({"type": "in_flight", "channels": counts or {}})
        self._task = asyncio.create_task(self._listen())

    def say(self, message: dict[str, Any]) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")

    async def hear(self, kind: str) -> dict[str, Any]:
        async with asyncio.timeout(20):
            while True:
                for message in self.heard:
                    if message["type"] == kind:
                        self.heard.remove(message)
                        return message
                await asyncio.sleep(0.002)

    def answer(self, close: dict[str, Any], in_flight: int) -> None:
        self.say({"type": "closed", "channel": close["channel"], "barrier": close["barrier"], "in_flight": in_flight})

    async def leave(self) -> None:
        self._task.cancel()
        self.writer.close()

    async def _listen(self) -> None:
        while line := await self.reader.readline():
            self.heard.append(json.loads(line))


def run(test: Callable[[Gateways, Path], Awaitable[None]]) -> None:
    async def main() -> None:
        folder = Path(tempfile.mkdtemp(prefix="ssgw"))
        gateways = Gateways(folder / "state", folder / "run")
        await gateways.start()
        try:
            await test(gateways, folder)
        finally:
            await gateways.close_server()
            shutil.rmtree(folder)

    asyncio.run(main())


async def connected(gateways: Gateways, number: int = 1) -> None:
    await Rig.until(lambda: gateways.connected == number)


def test_files_and_socket_are_private() -> None:
    async def test(gateways: Gateways, folder: Path) -> None:
        gateways.publish("main", {**ENTRY, "serving": {"engine_key": "s"}})
        gateways.set_keys(KEYS)
        await asyncio.sleep(0.01)
        for path in (
            folder / "state/gateway/table.json",
            folder / "state/gateway/keys.json",
            folder / "run/agent.sock",
        ):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        for path in (folder / "state/gateway", folder / "run"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700, path

    run(test)


def test_everything_is_told_on_connect_and_on_change_only() -> None:
    async def test(gateways: Gateways, folder: Path) -> None:
        gateways.publish("main", ENTRY)
        gateways.set_keys(KEYS)
        gateways.set_clock({"controller_ms": 1000, "boottime_ms": 20})
        gateway = FakeGateway()
        await gateway.dial(folder)
        table = await gateway.hear("table")
        assert table["channels"] == [ENTRY]
        assert table["clock"] == {"controller_ms": 1000, "boottime_ms": 20}
        assert (await gateway.hear("keys"))["keys"] == KEYS
        gateway.heard.clear()
        gateways.publish("main", dict(ENTRY))
        gateways.set_keys(dict(KEYS))
        gateways.set_settings({"drain_seconds": 30.0})
        gateways.set_clock({"controller_ms": 1000, "boottime_ms": 20})
        await asyncio.sleep(0.05)
        assert gateway.heard == []
        gateways.publish("main", {**ENTRY, "phase": "off"})
        gateways.publish("aux", {**ENTRY, "name": "aux"})
        assert [c["name"] for c in (await gateway.hear("table"))["channels"]] == ["main", "aux"]
        gateways.keep_channels({"aux"})
        assert [c["name"] for c in (await gateway.hear("table"))["channels"]] == ["aux"]
        gateways.set_keys({})
        assert (await gateway.hear("keys"))["keys"] == {}
        await gateway.leave()

    run(test)


def test_barrier_waits_for_every_gateway_and_sums() -> None:
    async def test(gateways: Gateways, folder: Path) -> None:
        gateways.publish("main", ENTRY)
        one, two = FakeGateway(gateway_id="g1"), FakeGateway(gateway_id="g2")
        await one.dial(folder)
        await two.dial(folder)
        await connected(gateways, 2)
        closing = asyncio.create_task(gateways.close("main"))
        first, second = await one.hear("close"), await two.hear("close")
        one.answer(first, 2)
        await asyncio.sleep(0.05)
        assert not closing.done()
        two.answer(second, 1)
        assert await closing == 3
        waiting = asyncio.create_task(gateways.wait_drained("main"))
        one.say({"type": "in_flight", "channels": {"main": 0}})
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert gateways.in_flight("main") == 1
        two.say({"type": "in_flight", "channels": {}})
        await asyncio.wait_for(waiting, 20)
        await one.leave()
        await two.leave()

    run(test)


def test_table_says_closed_from_the_barrier_on_and_open_again_by_the_next_entry() -> None:
    async def test(gateways: Gateways, folder: Path) -> None:
        gateway = FakeGateway()
        await gateway.dial(folder)
        await connected(gateways)
        gateways.publish("main", ENTRY)
        closing = asyncio.create_task(gateways.close("main"))
        gateway.answer(await gateway.hear("close"), 0)
        assert await closing == 0
        gateways.publish("aux", {**ENTRY, "name": "aux"})
        await Rig.until(lambda: gateway.heard and len(gateway.heard[-1].get("channels", ())) == 2)
        assert gateway.heard[-1]["channels"][0]["open"] is False
        gateway.heard.clear()
        gateways.publish("main", ENTRY)  # called off: the entry as it was
        assert (await gateway.hear("table"))["channels"][0]["open"] is True
        await gateway.leave()

    run(test)


def test_no_gateway_at_all_is_zero_at_once() -> None:
    async def test(gateways: Gateways, folder: Path) -> None:
        gateways.publish("main", ENTRY)
        async with asyncio.timeout(0.5):
            assert await gateways.close("main") == 0
            await gateways.wait_drained("main")

    run(test)


def test_gateway_that_exits_counts_as_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.gateways.GRACE_SECONDS", 600.0)  # not for its grace being over

    async def test(gateways: Gateways, folder: Path) -> None:
        child = await asyncio.create_subprocess_exec("sleep", "60")
        gateway = FakeGateway(child.pid)
        await gateway.dial(folder, {"main": 4})
        await connected(gateways)
        closing = asyncio.create_task(gateways.close("main"))
        await gateway.hear("close")
        child.kill()
        await child.wait()
        await gateway.leave()
        assert await asyncio.wait_for(closing, 20) == 0

    run(test)


def test_connection_that_breaks_is_waited_for_and_then_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.gateways.GRACE_SECONDS", 60.0)

    async def test(gateways: Gateways, folder: Path) -> None:
        gateway = FakeGateway()
        await gateway.dial(folder, {"main": 2})
        await Rig.until(lambda: gateways.in_flight("main") == 2)
        await gateway.leave()
        await connected(gateways, 0)
        assert gateways.in_flight("main") == 2
        closing = asyncio.create_task(gateways.close("main"))
        await asyncio.sleep(0.1)
        assert not closing.done()
        await gateway.dial(folder, {"main": 2})
        gateway.answer(await gateway.hear("close"), 2)
        assert await asyncio.wait_for(closing, 20) == 2
        monkeypatch.setattr("agent.gateways.GRACE_SECONDS", 0.5)
        begun = time.monotonic()
        await gateway.leave()
        await asyncio.wait_for(gateways.wait_drained("main"), 20)
        assert time.monotonic() - begun > 0.4

    run(test)


def test_after_an_agent_restart_known_gateways_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.gateways.GRACE_SECONDS", 60.0)

    async def test(before: Gateways, folder: Path) -> None:
        gateway = FakeGateway()
        await gateway.dial(folder)
        await connected(before)
        before.publish("main", ENTRY)
        before.set_keys(KEYS)
        await asyncio.sleep(0.02)
        await before.close_server()
        await gateway.leave()
        after = Gateways(folder / "state", folder / "run")
        await after.start()
        closing = asyncio.create_task(after.close("main"))
        await asyncio.sleep(0.1)
        assert not closing.done()
        again = FakeGateway()
        await again.dial(folder, {"main": 1})
        assert (await again.hear("table"))["channels"][0]["name"] == "main"
        assert (await again.hear("keys"))["keys"] == KEYS
        again.answer(await again.hear("close"), 1)
        assert await asyncio.wait_for(closing, 20) == 1
        await again.leave()
        await after.close_server()

    run(test)


def test_messages_that_cannot_be_used_harm_nothing() -> None:
    async def test(gateways: Gateways, folder: Path) -> None:
        gateway = FakeGateway()
        await gateway.dial(folder)
        await connected(gateways)
        gateway.writer.write(b'nonsense\n[]\n{}\n{"type": "closed"}\n{"type": "in_flight", "channels": 7}\n')
        gateway.say({"type": "in_flight", "channels": {"main": 5}})
        await Rig.until(lambda: gateways.in_flight("main") == 5)
        await gateway.leave()

    run(test)


def test_usage_that_cannot_be_kept_is_not_taken() -> None:
    async def test(_: Gateways, folder: Path) -> None:
        kept: list[str] = []
        full = True

        async def keep(rows: list[dict[str, Any]]) -> None:
            if full:
                raise OSError("disk full")
            kept.extend(r["id"] for r in rows)

        gateways = Gateways(folder / "state2", folder / "run2", keep)
        await gateways.start()
        gateway = FakeGateway()
        gateway.reader, gateway.writer = await asyncio.open_unix_connection(str(folder / "run2" / "agent.sock"))
        gateway.say({"type": "hello", "pid": os.getpid(), "gateway_id": "g", "version": "0"})
        gateway._task = asyncio.create_task(gateway._listen())
        gateway.say({"type": "usage", "rows": [{"id": "r1"}]})
        await asyncio.sleep(0.05)
        assert [m for m in gateway.heard if m["type"] == "usage_taken"] == []
        full = False
        again = FakeGateway(gateway_id="g")
        again.reader, again.writer = await asyncio.open_unix_connection(str(folder / "run2" / "agent.sock"))
        again.say({"type": "hello", "pid": os.getpid(), "gateway_id": "g", "version": "0"})
        again._task = asyncio.create_task(again._listen())
        again.say({"type": "usage", "rows": [{"id": "r1"}]})
        assert (await again.hear("usage_taken"))["ids"] == ["r1"]
        assert kept == ["r1"]
        await gateway.leave()
        await again.leave()
        await gateways.close_server()

    run(test)


def test_the_directory_reaches_every_gateway_is_kept_and_ages_once() -> None:
    async def test(gateways: Gateways, folder: Path) -> None:
        gateways.directory_ages(5)  # nothing is known yet
        place = {"node": "n2", "model": "m"}
        gateways.set_directory([place], "ab")
        gateway = FakeGateway()
        await gateway.dial(folder)
        said = {"type": "directory", "as_of_ms": None, "places": [place], "members": "ab"}
        assert await gateway.hear("directory") == said
        gateways.directory_ages(7)
        assert (await gateway.hear("directory"))["as_of_ms"] == 7
        gateways.directory_ages(9)  # it is as old as it was
        gateways.set_directory([place], "ab")
        assert await gateway.hear("directory") == said
        await gateway.leave()
        file = folder / "state" / "gateway" / "directory.json"
        assert json.loads(file.read_bytes()) == said
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        after = Gateways(folder / "state", folder / "other-run")  # the agent that comes next
        await after.start()
        after.directory_ages(11)
        assert json.loads(file.read_bytes()) == {**said, "as_of_ms": 11}
        await after.close_server()

    run(test)
