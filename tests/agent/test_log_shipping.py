"""Engine output on its way to the controller: whole, by offset, resumed where the controller has it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.log_shipping import LogShipper
from agent.runtime.logs import LaunchLog, LogFolder
from tests.fleet_parts import Controller, FakeNode, linked, until


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path / "c")
    yield controller
    controller.close()


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
            await until(lambda: text(controller) == "only this is kept")
            read = controller.logs.read("n1", "main", 0, 100)
            assert read is not None
            assert read["offset"] == 5000

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
