"""A planned restart, and several workers, with real processes: nobody is refused or lost, counts are exact throughout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from agent.gateway.handover import NAME
from tests.fakes.gateway_node import START_SECONDS, Node, go
from tests.fakes.gateway_rig import Answer, Rig, chat, read_answer
from tests.fakes.stub_engine import complete, stream_for_ever
from tests.parts import pid_alive

pytestmark = pytest.mark.system


class Load:
    """A steady load: clients that keep their connections, clients that come anew each time. Every answer is checked."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.answers = 0
        self.problems: list[str] = []
        self._stop = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self, keeping: int = 4, fresh: int = 2) -> AsyncIterator[Load]:
        tasks = [asyncio.create_task(self._keeping()) for _ in range(keeping)]
        tasks += [asyncio.create_task(self._fresh()) for _ in range(fresh)]
        try:
            yield self
        finally:
            self._stop.set()
            await asyncio.gather(*tasks)

    async def more(self, number: int) -> None:
        """Waits until so many further answers have come."""
        wanted = self.answers + number
        async with asyncio.timeout(20):
            while self.answers < wanted:
                await asyncio.sleep(0.005)

    async def _keeping(self) -> None:
        reader = writer = None
        while not self._stop.is_set():
            try:
                if reader is None or writer is None:
                    reader, writer = await self.node.dial()
                writer.write(chat())
                answer = await read_answer(reader)
                self._count(answer)
                if answer.headers.get("connection") == "close":
                    writer.close()
                    reader = writer = None
            except (OSError, EOFError) as err:
                self.problems.append(f"keeping: {err!r}")
                reader = writer = None
            await asyncio.sleep(0.003)
        if writer is not None:
            writer.close()

    async def _fresh(self) -> None:
        while not self._stop.is_set():
            try:
                reader, writer = await self.node.dial()
                await asyncio.sleep(0.01)  # accepted, and nothing said yet
                writer.write(chat())
                self._count(await read_answer(reader))
                writer.close()
            except (OSError, EOFError) as err:
                self.problems.append(f"fresh: {err!r}")

    def _count(self, answer: Answer) -> None:
        self.answers += 1
        if answer.status != 200:
            self.problems.append(f"{answer.status} {answer.body!r}")


@pytest.mark.parametrize(("before", "after"), [("1", "1"), ("2", "2"), ("1", "2")])
def test_restarts_under_a_steady_load(node: Node, before: str, after: str) -> None:
    async def test() -> None:
        old = node.gateway(SLOTSERVE_GATEWAY_WORKERS=before)
        await node.up(int(before))
        async with Load(node).running() as load:
            await load.more(50)
            for _ in range(2):
                new = node.gateway(SLOTSERVE_GATEWAY_WORKERS=after)
                assert await asyncio.to_thread(old.wait, START_SECONDS) == 0
                await load.more(50)
                old = new
        assert load.problems == []
        await node.up(int(after))
        old.signal(signal.SIGTERM)
        assert await asyncio.to_thread(old.wait, 20) == 0
        assert not node.offered()
        assert len(node.rows) == len({r["id"] for r in node.rows}) == load.answers, "each once, none lost"

    go(node, test)


@pytest.mark.parametrize("kind", ["IPv6", "TLS", "Unix"])
def test_a_restart_at_every_kind_of_address(node: Node, kind: str) -> None:
    """Requests and streams go on over it; new connections are answered by the new process."""
    node.listen(kind=kind)

    async def test() -> None:
        node.engine.behaviour = lambda seen: stream_for_ever(seen) if b'"stream": true' in seen.body else complete(seen)
        old = node.gateway()
        await node.up()
        reader, writer = await node.stream()
        async with Load(node).running() as load:
            await load.more(30)
            node.gateway()
            await node.up(2)
            await load.more(30)
            for _ in range(20):
                await asyncio.wait_for(reader.readuntil(b"\n\n"), 20)
            assert old.alive()
            writer.close()
            assert await asyncio.to_thread(old.wait, 20) == 0
            await load.more(10)
        assert load.problems == []

    go(node, test)


def test_streams_go_on_in_the_old_one_and_are_counted_with_the_new_ones(node: Node) -> None:
    async def test() -> None:
        node.engine.behaviour = stream_for_ever
        old = node.gateway()
        await node.up()
        first, first_writer = await node.stream()
        idle, idle_writer = await node.dial()
        new = node.gateway()
        await node.up(2)
        second, second_writer = await node.stream()
        await Rig.until(lambda: node.agent.in_flight("main") == 2)
        assert await node.agent.close("main") == 2, "summed over both"
        assert (await node.ask()).code == "model_switching"
        async with asyncio.timeout(20):  # one is told of the other's a moment later
            while 'slotserve_gateway_in_flight{channel="main"} 2' not in await node.metrics():
                await asyncio.sleep(0.01)
        for _ in range(50):
            await asyncio.wait_for(first.readuntil(b"\n\n"), 20)
        assert old.alive()
        assert await asyncio.wait_for(idle.read(), 20) == b"", "a connection without a request is not waited for"
        node.agent.cut("main", 7)
        for each in (first, second):
            assert b'"code":"model_switching"' in await asyncio.wait_for(each.read(), 20)
        await asyncio.wait_for(node.agent.wait_drained("main"), 20)
        assert await asyncio.to_thread(old.wait, 20) == 0, "it goes with its last stream"
        assert new.alive()
        for writer in (first_writer, second_writer, idle_writer):
            writer.close()

    go(node, test)


def test_the_old_one_lingers_no_longer_than_it_may(node: Node) -> None:
    async def test() -> None:
        node.engine.behaviour = stream_for_ever
        old = node.gateway()
        await node.up()
        reader, writer = await node.stream()
        node.gateway()
        assert b'"code":"restarting"' in await asyncio.wait_for(reader.read(), 20)
        assert await asyncio.to_thread(old.wait, 20) == 0
        writer.close()

    go(node, test, gateway_linger_seconds=0.3)


def test_the_old_one_goes_on_where_the_new_one_fails(node: Node) -> None:
    async def test() -> None:
        old = node.gateway()
        await node.up()
        taken = socket.socket()
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        node.listen(f"127.0.0.1:{taken.getsockname()[1]}")
        async with Load(node).running() as load:
            new = node.gateway()
            assert await asyncio.to_thread(new.wait, 20) == 1
            assert "cannot listen on" in new.output()
            await load.more(20)
        assert load.problems == []
        assert old.alive()
        visitor = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # comes, and says nothing that is understood
        visitor.connect(str(node.folder / "state" / "run" / NAME))
        visitor.send(b"what?")
        visitor.close()
        taken.close()
        node.listen("127.0.0.1:0")
        node.gateway()
        assert await asyncio.to_thread(old.wait, 20) == 0, "one more address: the others were handed over"
        assert (await node.ask()).status == 200

    go(node, test)


def test_rows_that_an_old_one_leaves_are_handed_over_by_the_new_one(node: Node) -> None:
    async def test() -> None:
        old = node.gateway()
        await node.up()
        await node.agent.close_server()
        assert (await node.ask()).status == 200
        new = node.gateway()
        assert await asyncio.to_thread(old.wait, 20) == 0
        assert (await node.ask()).status == 200
        assert len(list((node.folder / "state" / "gateway").glob("usage-*.json"))) == 1
        node.agent = node.new_agent()
        await node.start_agent()
        await Rig.until(lambda: len(node.rows) >= 2)
        await asyncio.sleep(0.7)
        assert len({r["id"] for r in node.rows}) == len(node.rows) == 2
        assert not list((node.folder / "state" / "gateway").glob("usage-*.json"))
        assert new.alive()

    go(node, test)


def test_a_signal_starts_the_successor(node: Node) -> None:
    async def test() -> None:
        systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        systemd.bind(str(node.folder / "notify"))
        systemd.settimeout(20)
        old = node.gateway(NOTIFY_SOCKET=str(node.folder / "notify"))
        await node.up()
        assert systemd.recv(100) == b"READY=1\nMAINPID=%d\n" % old.pid
        async with Load(node).running() as load:
            await load.more(10)
            old.signal(signal.SIGUSR2)
            assert await asyncio.to_thread(old.wait, 20) == 0
            await load.more(30)
        assert load.problems == []
        (link,) = node.agent._links
        assert systemd.recv(100) == b"READY=1\nMAINPID=%d\n" % link.pid, "the service's main process is the new one"
        systemd.close()
        os.kill(link.pid, signal.SIGTERM)
        await Rig.until(lambda: not pid_alive(link.pid), 10)

    go(node, test)


def test_replace_returns_when_the_new_one_serves_and_says_why_where_it_does_not(node: Node) -> None:
    def run(env: dict[str, str]) -> tuple[int, str]:
        command = (sys.executable, "-m", "agent.main", "gateway", "--replace")
        with (node.folder / "replace.log").open("w+") as out:  # a file: the new gateway keeps it open
            status = subprocess.run(command, env=env, stdout=out, stderr=out, timeout=40, check=False).returncode
            out.seek(0)
            return status, out.read()

    async def test() -> None:
        old = node.gateway()
        await node.up()
        env = {**node.env(), "SLOTSERVE_METRICS_ADDRESS": "not an address"}
        async with Load(node).running() as load:
            await load.more(5)
            status, text = await asyncio.to_thread(run, env)
            assert status == 1
            assert "SLOTSERVE_METRICS_ADDRESS" in text
            assert "the one that runs goes on" in text
            await load.more(5)
            assert old.alive()
            status, text = await asyncio.to_thread(run, node.env())
            assert status == 0, text
            assert await asyncio.to_thread(old.wait, 20) == 0
            await load.more(20)
        assert load.problems == []
        (link,) = node.agent._links
        os.kill(link.pid, signal.SIGTERM)
        await Rig.until(lambda: not pid_alive(link.pid), 10)

    go(node, test)
