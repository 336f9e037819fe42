"""What a node says of its GPUs: a driver that is late, a card that is lost, whose processes run; and that it arrives."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.node import Node
from agent.runtime import gpu as gpu_module
from agent.runtime.gpu import Gpus
from agent.runtime.models import ModelIndex
from agent.settings import AgentSettings, ChannelConfig, NodeFile
from controller.fleet import reports
from controller.store.tables import Channel
from protos import types_pb2
from tests.agent.runtime.fake_nvml import GIB, A, B, FakeNvml
from tests.fleet_parts import Controller, FakeNode, linked
from tests.parts import until


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    monkeypatch.setattr(gpu_module, "RETRY_SECONDS", 0.0)
    return FakeNvml()


def node_with(nvml: FakeNvml, *gpus: Any, process: Any = None) -> Node:
    channel = ChannelConfig(name="main", engines=["llama.cpp"], gpus=list(gpus))
    task: Any = SimpleNamespace(status=lambda: {"channel": "main"}, process=process)
    return Node(
        NodeFile(node="n1", channels=[channel]),
        AgentSettings(),  # type: ignore[call-arg]
        channels={"main": task},
        models=ModelIndex([channel]),
        gpus=Gpus(nvml),
        door=SimpleNamespace(),  # type: ignore[arg-type]
    )


def test_a_driver_that_comes_up_later_is_declared_then_and_kept(nvml: FakeNvml) -> None:
    nvml.error = 9
    node = node_with(nvml, 0, 1)

    async def story() -> None:
        told: list[str] = []
        await node.look_at_gpus()
        watching = asyncio.ensure_future(node.watch_gpus(lambda: told.append("status"), lambda: told.append("hello")))
        await until(lambda: "status" in told)
        assert list(node.hello().channels[0].gpu_uuids) == ["0", "1"]
        assert "no GPU can be seen" in node.status().gpu_problem
        assert "hello" not in told
        watching.cancel()
        nvml.error = 0
        watching = asyncio.ensure_future(node.watch_gpus(lambda: told.append("status"), lambda: told.append("hello")))
        await until(lambda: "hello" in told)
        watching.cancel()

    asyncio.run(story())
    declared = node.hello().channels[0]
    assert (list(declared.gpu_uuids), declared.gpu_memory_bytes) == ([A, B], 48 * GIB)
    assert node.status().gpu_problem == ""
    nvml.error, nvml.lost = 9, 9  # the driver is taken out for a while: what is known of the cards stays
    asyncio.run(node.look_at_gpus())
    assert node.hello().channels[0] == declared
    assert node.status().gpu_problem
    assert not node.status().gpus


def test_processes_are_told_with_whose_they_are(nvml: FakeNvml) -> None:
    node = node_with(nvml, A, process=SimpleNamespace(engine_pid=os.getpid(), shim_pid=999_999_990))
    nvml.gone = set()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as worker:
        nvml.use, nvml.running[A], nvml.running[B] = 55, [(worker.pid, 2 * GIB)], [(1, GIB), (999_999_999, None)]
        asyncio.run(node.look_at_gpus())
        worker.kill()
    first, second = reports.live_gpus(node.status())
    assert (first.utilisation_percent, first.temperature_c, first.power_watts) == (55, 41, 120)
    assert [(p.pid, p.channel, p.memory_bytes) for p in first.processes] == [(worker.pid, "main", 2 * GIB)]
    assert " " not in first.processes[0].command, "a command line of ours may hold a key"
    assert [(p.pid, p.channel) for p in second.processes] == [(1, None), (999_999_999, None)]
    nvml.gone = {A}
    asyncio.run(node.look_at_gpus())
    lost = reports.live_gpus(node.status())[0]
    assert (lost.uuid, lost.utilisation_percent, lost.temperature_c) == (A, None, None)
    assert lost.problem
    assert "has to be reset" in node.status().gpu_problem


def test_no_nvidia_at_all_is_no_problem(nvml: FakeNvml) -> None:
    nvml.error = 12
    node = node_with(nvml)
    asyncio.run(node.look_at_gpus())
    assert node.status().gpu_problem == ""
    assert not node.status().gpus


def test_what_a_node_declares_later_reaches_the_controller(tmp_path: Path) -> None:
    controller = Controller(tmp_path / "c")
    state = controller.enrolled()

    class Late(FakeNode):
        uuids: tuple[str, ...] = ()

        def hello(self) -> Any:
            said = super().hello()
            said.channels[0].gpu_uuids.extend(self.uuids)
            said.channels[0].gpu_memory_bytes = 24 * len(self.uuids)
            return said

    node = Late()

    def stored() -> tuple[list[Any], int]:
        with controller.store.read() as session:
            row = session.query(Channel).one()
            return row.gpu_uuids, row.gpu_memory_bytes

    async def scene() -> None:
        async with linked(state, node) as link:
            await until(lambda: controller.live.node("n1").online)
            assert stored() == ([], 0)
            node.uuids = (A, B)
            node.said.gpus.append(types_pb2.Gpu(index=0, uuid=A, name="x", memory_total_bytes=24, problem="lost"))
            node.said.gpu_problem = "one is lost"
            link.up.declared_changed()
            link.up.status_changed()
            await until(lambda: stored() == ([A, B], 48))
            await until(lambda: controller.live.node("n1").gpu_problem == "one is lost")
            assert controller.live.node("n1").online

    try:
        asyncio.run(scene())
    finally:
        controller.close()
