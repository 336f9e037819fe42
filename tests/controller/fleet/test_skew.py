"""Which versions of agents are taken."""

from __future__ import annotations

import asyncio

import pytest

from controller.fleet import service, skew
from tests.fleet_parts import Controller, FakeNode, linked
from tests.parts import until


@pytest.mark.parametrize(
    ("agent", "controller", "words"),
    [
        ("1.4.2", "1.4.2", ""),
        ("1.4.0", "1.4.2", ""),
        ("1.3.9", "1.4.0", ""),
        ("1.2.0", "1.4.7", ""),
        ("1.1.9", "1.4.0", "more than 2 minor versions older than this controller (1.4.0): upgrade the node"),
        ("1.4.3", "1.4.2", "newer than this controller (1.4.2): upgrade the controller first"),
        ("1.5.0", "1.4.9", "newer"),
        ("2.0.0", "1.9.0", "newer"),
        ("1.9.0", "2.0.0", "older"),
        ("1.4.2.dev3", "1.4.2", ""),
        ("", "1.4.2", "the agent says that it is version ''"),
        ("main", "1.4.2", "install a release on both"),
    ],
)
def test_versions(agent: str, controller: str, words: str) -> None:
    said = skew.refusal(agent, controller)
    assert bool(said) == bool(words)
    assert words in said


def test_both_sides_show_why(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(tmp_path / "c")
    monkeypatch.setattr(service, "VERSION", "0.0.9")
    try:
        state = controller.enrolled()

        async def scene() -> None:
            async with linked(state, FakeNode()) as link:
                await until(lambda: "newer than this controller" in link.trouble)
                assert not link.connected
                assert "upgrade the controller first" in controller.live.node("n1").turned_away
                assert not controller.live.node("n1").online
                monkeypatch.setattr(service, "VERSION", "0.3.0")
                await until(lambda: link.connected, 15)
                assert link.trouble == ""
                assert controller.live.node("n1").turned_away == ""

        asyncio.run(scene())
    finally:
        controller.close()
