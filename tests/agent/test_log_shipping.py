"""Engine output on its way to the controller: whole, by offset, resumed where the controller has it."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.log_shipping import LogShipper
from agent.runtime.logs import LaunchLog, LogFolder
from tests.agent.runtime import runtimes
from tests.fleet_parts import Controller, FakeNode, linked, plan_bytes, step
from tests.parts import until


def begin(folder: LogFolder, launch_id: str, at: int, preset: str | None = None) -> None:
    folder.begin(LaunchLog(launch_id, "model", preset, "identity", "r1", at))


def write(folder: LogFolder, launch_id: str, data: bytes, segment: int = 0) -> None:
    """As the shim writes."""
    with (folder.path / f"{launch_id}.{segment:012d}.log").open("ab") as file:
        file.write(data)


def text(controller: Controller, launch: str = "current") -> str:
    read = controller.logs.read("n1", "main", 0, 1_000_000, launch)
    return read["text"] if read else ""


def shipper(folder: LogFolder) -> dict[str, Any]:
    return {"shipper": LogShipper({"main": folder}, look_seconds=0.02)}


def test_output_arrives_while_it_is_written(controller: Controller, tmp_path: Path) -> None:
    state, folder = controller.enrolled(), LogFolder(tmp_path / "logs")
    begin(folder, "0001", 1000, "p")

    async def scene() -> None:
        async with linked(state, FakeNode(), **shipper(folder)):
            write(folder, "0001", b"loading\n")
            await until(lambda: text(controller) == "loading\n")
            write(folder, "0001", b"x" * 200_000)
            await until(lambda: len(text(controller)) == 200_008)
            folder.end("0001", 2000, failed=True)
            await until(lambda: controller.logs.launches("n1", "main")[0]["failed"])
            begin(folder, "0002", 3000)
            write(folder, "0002", b"second")
            await until(lambda: text(controller) == "second")
            await until(lambda: text(controller, "previous").startswith("loading"))
            first, second = controller.logs.launches("n1", "main")[::-1]
            assert (first["preset"], first["ended"], first["reservation_id"]) == ("p", True, "r1")
            assert (second["preset"], second["ended"]) == (None, False)

    asyncio.run(scene())


def test_shipping_goes_on_where_the_controller_has_it(controller: Controller, tmp_path: Path) -> None:
    state, folder = controller.enrolled(), LogFolder(tmp_path / "logs")
    begin(folder, "0001", 1000)
    write(folder, "0001", b"one ")
    sent: list[int] = []

    async def scene() -> None:
        async with linked(state, FakeNode(), **shipper(folder)):
            await until(lambda: text(controller) == "one ")
        write(folder, "0001", b"two ")
        parts = shipper(folder)
        exchange = parts["shipper"]._exchange

        async def spy(call: Any, name: str, launch: Any, offset: int, data: bytes) -> int:
            sent.extend([offset] if data else [])
            return await exchange(call, name, launch, offset, data)

        parts["shipper"]._exchange = spy
        async with linked(state, FakeNode(), **parts) as link:
            await until(lambda: text(controller) == "one two ")
            assert sent == [4], "only what is new"
            await asyncio.to_thread(controller.restart)
            write(folder, "0001", b"three")
            await until(lambda: link.connected, 15)
            await until(lambda: text(controller) == "one two three")

    asyncio.run(scene())


def test_lost_segments_leave_a_gap(controller: Controller, tmp_path: Path) -> None:
    state, folder = controller.enrolled(), LogFolder(tmp_path / "logs")
    begin(folder, "0001", 1000)
    write(folder, "0001", b"only this is kept", segment=5000)

    async def scene() -> None:
        async with linked(state, FakeNode(), **shipper(folder)):
            await until(lambda: text(controller).endswith("kept]\nonly this is kept"))
            assert text(controller).startswith("\n[slotserve: 5000 bytes of output are missing here")
            read = controller.logs.read("n1", "main", 5000, 100)
            assert read is not None
            assert (read["offset"], read["text"]) == (5000, "only this is kept")

    asyncio.run(scene())


def test_a_disk_that_fails_does_not_end_the_connection(controller: Controller, tmp_path: Path) -> None:
    state, folder = controller.enrolled(), LogFolder(tmp_path / "logs")
    begin(folder, "0001", 1000)
    failed: list[int] = []

    def broken() -> list[LaunchLog]:
        failed.append(1)
        raise OSError(5, "Input/output error")

    folder.launches = broken  # type: ignore[method-assign]

    async def scene() -> None:
        async with linked(state, FakeNode(), **shipper(folder)) as link:
            await until(lambda: link.connected)
            call = link._call
            await until(lambda: failed)
            await asyncio.sleep(0.2)
            assert link._call is call

    asyncio.run(scene())


SAY = "import os; [os.write(1, b'line %07d\\n' % n) for n in range(1_100_000)]"


class Stuck:
    """The controller's disk for logs: until `gone` is set every write waits."""

    def __init__(self, controller: Controller) -> None:
        self.gone, self.pieces = threading.Event(), [0]
        self._append = controller.logs.append
        controller.logs.append = self.append  # type: ignore[method-assign]

    def append(self, *args: Any) -> int:
        self.pieces.append(len(args[-1]))
        assert self.gone.wait(60)
        return self._append(*args)


def test_a_controller_that_acknowledges_nothing_blocks_no_engine(controller: Controller, short_dir: Path) -> None:
    """A real engine says 14 MB: it ends by itself, one piece is on its way, and what both sides keep arrives whole."""
    state, stuck = controller.enrolled(), Stuck(controller)

    async def scene() -> None:
        r = runtimes.runtime(short_dir, [sys.executable, "-S", "-c", SAY])
        async with linked(state, FakeNode(), shipper=LogShipper({"main": r.logs}, look_seconds=0.02)) as link:
            await until(lambda: link.connected, 15)
            p = await runtimes.start(r)
            await until(lambda: len(stuck.pieces) > 1, 15, "the first words are on their way")
            trouble = await asyncio.wait_for(r.wait_exit(p), 60)
            assert "exit status 0" in trouble.reason
            assert link.connected
            await asyncio.sleep(0.1)
            assert len(stuck.pieces) == 2, "nothing is sent before the piece before is acknowledged"
            stuck.gone.set()
            size = 13 * 1_100_000
            await until(
                lambda: [x["ended"] for x in controller.logs.launches("n1", "main")] == [True], 60, "all arrives"
            )
        start = controller.logs.read("n1", "main", 0, 1_000)
        assert start is not None
        said = start["text"].partition("\n")[0]
        assert "bytes of output came before this" in said
        read = controller.logs.read("n1", "main", start["offset"] + len(said) + 1, 1_000_000)
        assert read is not None
        whole = b"".join(b"line %07d\n" % n for n in range(1_100_000)).decode()
        kept = ""
        while read["text"]:
            assert read["text"] == whole[read["offset"] : read["next_offset"]]
            kept += read["text"]
            read = controller.logs.read("n1", "main", read["next_offset"], 1_000_000)
            assert read is not None
        assert read["next_offset"] == size, "to the last byte"
        assert len(kept) > 8_000_000, "the last 10 MB but a segment"
        assert max(stuck.pieces) <= 64 << 10

    try:
        asyncio.run(scene())
    finally:
        stuck.gone.set()
        runtimes.end_all(short_dir)


def test_nodes_that_wait_for_the_logs_disk_delay_no_plan(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Stuck(controller)
    monkeypatch.setattr("controller.fleet.server.THREADS", 2)
    controller.restart()
    states = [controller.enrolled(f"n{n}") for n in range(1, 5)]

    async def scene() -> None:
        async with AsyncExitStack() as stack:
            for n, state in enumerate(states, 1):
                folder = LogFolder(tmp_path / f"logs{n}")
                begin(folder, "0001", 1000)
                write(folder, "0001", b"words")
                node = FakeNode(f"n{n}")
                await stack.enter_async_context(linked(state, node, **shipper(folder)))
                controller.planner.set(f"n{n}", 1, 1, plan_bytes(f"n{n}"))
                await until(lambda node=node: node.plans, 15, "the plan arrives")
            await until(lambda: len(stuck.pieces) > 4, 15, "all wait for the disk")
            controller.planner.set("n4", 1, 2, plan_bytes("n4", step(5)))
            await until(lambda: len(node.plans) > 1, 15, "the next plan arrives")
            stuck.gone.set()

    try:
        asyncio.run(scene())
    finally:
        stuck.gone.set()
