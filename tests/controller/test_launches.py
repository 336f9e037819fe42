"""What a (model, preset) would be started with, and load times out of the store."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from controller.scheduling.types import identity_of
from controller.store.estimates import load_seconds
from controller.store.launches import resolve
from controller.store.tables import Channel, Load, Node, NodeModel, Preset
from tests.controller.planner_world import START, World


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.store.close()


def launch(world, model="A", preset=None, **more):
    with world.store.read() as session:
        return resolve(session, session.get(Channel, "n1/main"), session.get(Node, "n1"), model, preset, **more)


def test_without_a_preset_the_first_engine_that_loads_it(world) -> None:
    world.set(Channel, "n1/main", engines=["vllm", "llama.cpp", "simulated"])
    assert launch(world) == {
        "identity": identity_of("A", None, "llama.cpp", [], {}),
        "model": "A",
        "preset": None,
        "engine": "llama.cpp",
        "args": [],
        "env": {},
        "load_timeout_seconds": None,
        "load_seconds": 60.0,
    }
    world.set(Channel, "n1/main", engines=["vllm"])
    assert launch(world) is None


def test_with_a_preset(world) -> None:
    world.preset("-c", " 8 ")
    first = launch(world, preset="p")
    assert (first["engine"], first["args"]) == ("simulated", ["-c", "8"])
    world.preset("8", "-c")
    assert launch(world, preset="p")["identity"] != first["identity"], "order counts"
    world.set(Channel, "n1/main", engines=["llama.cpp"])
    assert launch(world, preset="p") is None, "no such engine on the channel"


def test_unknown_ones(world) -> None:
    assert launch(world, "nothing") is None
    assert launch(world, "A", "nothing") is None
    world.preset("-c", "8")
    world.set(Preset, "Ap", deleted_at=START)
    assert launch(world, "A", "p") is None
    with world.store.write() as session:
        session.get(NodeModel, ("n1", "A")).gone_at = START
    assert launch(world) is None


def test_a_preset_made_again_after_its_deletion(world) -> None:
    world.preset("old")
    world.set(Preset, "Ap", deleted_at=START, id="zzz")
    world.preset("x")
    with world.store.write() as session:
        row = session.scalars(select(Preset).where(Preset.deleted_at.is_(None))).one_or_none()
        if row is None:
            session.add(
                Preset(id="new", model="A", name="p", engine="simulated", args=["new"], created_at=0, updated_at=0)
            )
        else:
            row.args = ["new"]
    assert launch(world, "A", "p")["args"] == ["new"]


def test_estimates(world) -> None:
    def seconds(model, preset=None, mbps=500.0):
        with world.store.read() as session:
            return load_seconds(session, "n1", model, preset, mbps)

    with world.store.write() as session:
        session.add(NodeModel(node_id="n1", name="big", path="/b", size_bytes=10**10, format="gguf", seen_at=0))
        for n, (preset, ok, took) in enumerate(
            [("p", True, 1000), *[("p", True, 10 + i) for i in range(5)], ("p", False, 1), (None, True, 90)]
        ):
            session.add(
                Load(id=f"x{n}", node_id="n1", model="B", preset=preset, identity="", ok=ok, seconds=took, at=n)
            )
    assert seconds("big") == 35
    assert seconds("big", mbps=1000) == 25
    assert seconds("unknown") == 15
    assert seconds("B", "p") == 12, "the newest five that succeeded"
    assert seconds("B", None) == 75, "(60 + 90) / 2: those without a preset"
    assert seconds("B", "other") == (90 + 14 + 13 + 12 + 11) / 5, "any preset, where there are none with this one"


def test_a_nodes_own_reading_speed_wins(world) -> None:
    with world.store.write() as session:
        session.add(NodeModel(node_id="n1", name="big", path="/b", size_bytes=10**10, format="gguf", seen_at=0))
    assert launch(world, "big", disk_mbps=1000)["load_seconds"] == 25
    world.set(Node, "n1", own_settings={"disk_read_mbps": 100})
    assert launch(world, "big", disk_mbps=1000)["load_seconds"] == 115


@pytest.mark.parametrize(
    ("engine", "same", "other"),
    [
        ("llama.cpp", [["-c", "8"], ["-c", "8", "--port", "9"], ["--alias", "x", "-c", "8"], ["-c=8"]], ["-c", "9"]),
        ("vllm", [["--max-model-len", "8"], ["--port=9", "--max-model-len", "8"]], ["--max-model-len", "9"]),
        ("sglang", [["--context-length", "8"], ["--model", "/x", "--context-length", "8"]], ["--context-length", "9"]),
    ],
)
def test_what_slotserve_owns_makes_no_other_target(world, engine, same, other) -> None:
    """A target is what the engine would be started with: an edit of what is taken out restarts nothing."""
    world.set(Channel, "n1/main", engines=[engine])
    world.preset()

    def edited(*args: str, **env: str):
        world.set(Preset, "Ap", engine=engine, args=list(args), env=env)
        return launch(world, preset="p")

    first = edited(*same[0])
    for args in same:
        assert edited(*args, CUDA_VISIBLE_DEVICES="3")["identity"] == first["identity"], args
    assert edited(*same[0], CUDA_VISIBLE_DEVICES="3")["env"] == {}
    assert edited(*other)["identity"] != first["identity"]
    assert edited(*same[0], MINE="1")["identity"] != first["identity"]
