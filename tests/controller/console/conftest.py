"""The scene of the pages, made once a test; and one with a past, for all tests that only look."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.store.tables import ChannelState, Load, Node, Usage
from tests.console_scene import HOSTILE, NOW, Scene, at, scene
from tests.controller.console.reading import HOUR


@pytest.fixture
def world(tmp_path: Path) -> Scene:
    return scene(tmp_path)


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The scene with a past (what a channel did, requests, loads), for all tests that only look."""
    world = scene(tmp_path_factory.mktemp("past"))
    with world.store.write() as db:
        nodes = {n.name: n.id for n in db.query(Node)}
        channel = world.ids["gpu-a02/tp4-a"]
        for when, phase, model, fallback in (
            (NOW - 30 * HOUR, "ready", "Qwen3-32B-FP8", False),
            (NOW - 5 * HOUR, "unknown", None, False),
            (NOW - 4 * HOUR, "ready", "Qwen3-32B-FP8", False),
            (at("13:27"), "retry_wait", "gpt-oss-120b-MXFP4", False),
            (at("13:30"), "ready", "Qwen3-32B-FP8", True),
        ):
            db.add(ChannelState(channel_id=channel, at=when, phase=phase, model=model, fallback=fallback))
        for i, who in enumerate(("lin", "maya", "maya", "tomas")):
            db.add(
                Usage(
                    id=f"u{i}", node_id=nodes["gpu-a02"], channel="tp4-a", model=HOSTILE, key_id="k",
                    user_id=world.ids[who], at=NOW - 1 - i * HOUR, duration=2.0, first_byte=0.1, status=403 if i == 3 else 200,
                    outcome="served", bytes_in=1, bytes_out=2, prompt_tokens=10, completion_tokens=5,
                )
            )  # fmt: skip
        for i in range(7):
            db.add(
                Load(
                    id=f"l{i}", node_id=nodes["gpu-a02"], model="Qwen3-32B-FP8", preset=None, identity="x", ok=i != 2,
                    seconds=50.0 + i, at=NOW - i * HOUR,
                )
            )  # fmt: skip
    return world
