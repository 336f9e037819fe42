"""What a brand-new installation says to do next: without nodes, and with nodes that have no default yet."""

from __future__ import annotations

import pytest

from controller.store.tables import Channel, Node
from tests.console_scene import Scene
from tests.controller.console.test_overview import plain


@pytest.mark.parametrize(("who", "words"), [("lin", "Add a node"), ("maya", "slotserve node add NAME")])
def test_without_nodes_it_says_who_adds_one_and_how(world: Scene, who: str, words: str) -> None:
    with world.store.write() as db:
        for node in db.query(Node):
            node.removed_at = world.now
    page = plain(world.client(who).get("/").text)
    assert "No channels yet" in page
    assert words in page


def test_until_a_channel_has_a_default_an_administrator_is_told_the_first_steps(world: Scene) -> None:
    assert "What to do first" not in world.client("lin").get("/").text
    with world.store.write() as db:
        for channel in db.query(Channel):
            channel.default_model = channel.default_preset = None
    page = world.client("lin").get("/").text
    assert "What to do first" in page
    assert 'href="/channels/gpu-a01/' in page
    assert "What to do first" not in world.client("maya").get("/").text
