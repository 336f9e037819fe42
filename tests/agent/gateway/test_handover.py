"""A planned restart, and several workers, with real processes: nobody is refused or lost, counts are exact throughout."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.gateway.handover import NAME
from agent.gateways import Gateways
from tests.agent.gateway.test_tls import trust, write_certificate
from tests.fakes.gateway_rig import Answer, Rig, chat, read_answer, request, secret, step, target
from tests.fakes.stub_engine import StubEngine, complete, stream_for_ever
from tests.parts import Child, free_port, pid_alive, start

pytestmark = pytest.mark.system
RUN = (
    "import sys\nfrom common import logs\nlogs.set_up()\nfrom agent.gateway.main import run\n"
    "from agent.settings import AgentSettings\nsys.exit(run(AgentSettings()))"
)


class Node:
    """A stub engine, the agent's side in this process, and gateways that are real processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = StubEngine(folder / "engine.sock")
        self.port = free_port()
        self.rows: list[dict[str, Any]] = []
        self.children: list[Child] = []
        self.agent = self.new_agent()
        self.kind = "IPv4"  # of the address that clients call: or IPv6, TLS, Unix
        self.listen()

    def listen(self, *more: str, kind: str = "IPv4") -> None:
        self.kind = kind
        host = "[::1]" if kind == "IPv6" else "127.0.0.1"
        addresses = [f"{host}:{self.port}", f"unix:{self.folder}/gateway.sock", *more]
        tls = ""
        if kind == "TLS":
            write_certificate(self.folder)
            tls = f'tls_certificate = "{self.folder}/tls.pem"\ntls_key = "{self.folder}/tls.key"\n'
        (self.folder / "node.toml").write_text(f'node = "n"\n[gateway]\nlisten = {json.dumps(addresses)}\n{tls}')

    def new_agent(self) -> Gateways:
        return Gateways(self.folder / "state", self.folder / "state" / "run", self.rows.extend)

    async def begin(self, **settings: Any) -> None:
        await self.engine.start()
        await self.start_agent(**settings)

    async def start_agent(self, **settings: Any) -> None:
        await self.agent.start()
        self.agent.set_keys(Rig.keys())
        self.agent.set_settings(settings)
        fake = Rig.__new__(Rig)
        fake.engine = self.engine
        self.agent.publish("main", Rig.entry(fake, serving=target(), steps=[step(0, target())]))

    def gateway(self, **env: str) -> Child:
        child = start(
            [sys.executable, "-c", RUN],
            self.folder / f"gateway{len(self.children)}.log",
            {**self.env(), **env},
        )
        self.children.append(child)
        return child

    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path.cwd()),
            "SLOTSERVE_NODE_FILE": str(self.folder / "node.toml"),
            "SLOTSERVE_AGENT_STATE_DIR": str(self.folder / "state"),
        }

    async def up(self, gateways: int = 1) -> None:
        await Rig.until(lambda: self.agent.connected == gateways, 20)
        await Rig.until(self.offered, 20)

    def offered(self) -> bool:
        return (self.folder / "state" / "run" / NAME).exists()

    async def counted(self, served: int) -> None:
        """Returns once /metrics counts so many requests, of all processes together."""
        line = f'requests_total{{channel="main",outcome="ok",status="200"}} {served}\n'
        async with asyncio.timeout(20):
            while line not in await self.metrics():
                await asyncio.sleep(0.05)

    async def all_know(self, in_flight: int) -> None:
        """Returns once each process has been told of so many running requests in all of them."""

        def told() -> bool:
            links = self.agent._links
            return all(
                x.counts.get("main", 0) + x.told["channels"].get("main", 0) == in_flight for x in links if x.told
            )

        await Rig.until(lambda: self.agent.in_flight("main") == in_flight and told())
        await self.agent.close("none")  # answered behind what was said before

    async def end(self) -> None:
        for child in self.children:
            await asyncio.to_thread(child.stop)
        await self.agent.close_server()
        await self.engine.stop()

    async def dial(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.kind == "Unix":
            reader, writer = await asyncio.open_unix_connection(str(self.folder / "gateway.sock"))
        else:
            host = "::1" if self.kind == "IPv6" else "127.0.0.1"
            context = trust(self.folder) if self.kind == "TLS" else None
            reader, writer = await asyncio.open_connection(host, self.port, ssl=context)
        writer.write(data)
        return reader, writer

    async def ask(self, data: bytes | None = None) -> Answer:
        reader, writer = await self.dial(chat() if data is None else data)
        try:
            return await read_answer(reader)
        finally:
            writer.close()

    async def stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.dial(chat(True))
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    async def metrics(self) -> str:
        return (await self.ask(request("/metrics", who="root", method="GET"))).body.decode()


@pytest.fixture
def node() -> Iterator[Node]:
    folder = Path(tempfile.mkdtemp(prefix="ssho"))
    yield Node(folder)
    shutil.rmtree(folder)


def go(node: Node, test: Callable[[], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        try:
            await node.begin(**settings)
            await test()
        finally:
            await node.end()

    asyncio.run(main())


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
                assert await asyncio.to_thread(old.wait, 20) == 0
                await load.more(50)
                old = new
        assert load.problems == []
        await node.up(int(after))
        old.signal(signal.SIGTERM)
        assert await asyncio.to_thread(old.wait, 10) == 0
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
        assert await asyncio.to_thread(old.wait, 5) == 0, "it goes with its last stream"
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
        assert await asyncio.to_thread(old.wait, 5) == 0
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
            assert await asyncio.to_thread(new.wait, 10) == 1
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
        assert await asyncio.to_thread(old.wait, 10) == 0, "one more address: the others were handed over"
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
        systemd.settimeout(5)
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


def test_workers_share_the_work_and_one_that_dies_is_started_again(node: Node) -> None:
    async def test() -> None:
        parent = node.gateway(SLOTSERVE_GATEWAY_WORKERS="2")
        await node.up(2)
        for _ in range(30):
            assert (await node.ask()).status == 200
        await node.counted(30)
        health = (await node.ask(request("/healthz", who=None, method="GET"))).json()
        assert (health["workers"], health["workers_alive"]) == (2, 2)
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
        assert await asyncio.to_thread(parent.wait, 10) == 0
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
