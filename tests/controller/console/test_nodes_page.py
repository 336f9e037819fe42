"""The administration's page of nodes, and what the overview says of nodes that are shut out or turned away."""

from __future__ import annotations

import html
from datetime import timedelta

import pytest

from controller.console.show import moment
from controller.fleet import skew
from controller.fleet.service import VERSION
from controller.store.tables import Node
from tests.console_scene import NOW, Scene
from tests.controller.console.reading import plain

DAY = 86_400_000


def node(world: Scene, name: str = "gpu-a01", **values: object) -> None:
    with world.store.write() as db:
        for field, value in values.items():
            setattr(db.query(Node).filter_by(name=name).one(), field, value)


def page(world: Scene, path: str = "/admin/nodes", language: str = "en") -> str:
    return html.unescape(world.client("lin", language).get(path).text)


def test_a_node_shows_its_certificate_version_and_relays(world: Scene) -> None:
    node(world, certificate={"ends_at": NOW + 10 * DAY})
    world.live.update("gpu-a01", version="0.0.1", relay_address="gpu-a01:8444")
    text = plain(page(world))
    assert f"until {moment(NOW + 10 * DAY) + timedelta(hours=8):%-d %b}" in text
    assert "The agent renews it by itself" in text
    assert f"version 0.0.1 controller: {VERSION}" in text
    assert "takes calls for other nodes’ models, at gpu-a01:8444" in text


@pytest.mark.parametrize(("language", "words"), [("en", "upgrade the node"), ("zh_Hans", "请升级该节点")])
def test_who_is_turned_away_says_why_on_both_pages(world: Scene, language: str, words: str) -> None:
    world.live.update("gpu-a01", online=False, turned_away=skew.refusal("0.0.1", "9.9.9"), version="0.0.1")
    node(world, disabled_at=NOW)
    for path in ("/admin/nodes", "/"):
        text = plain(page(world, path, language))
        assert words in text, path
    assert "Shut out" in plain(page(world, "/"))


def test_maintenance_shows_what_still_runs_and_whom_it_touches(world: Scene) -> None:
    client = world.client("lin")
    token = client.get("/admin/nodes").text.split('name="csrf-token" content="')[1].split('"')[0]
    until = "2026-11-20T12:00:00Z"
    asked = client.patch("/api/v1/nodes/gpu-a01", json={"cordoned": True, "drain_until": until, "reason": "new fans"},
                         headers={"X-CSRF-Token": token})  # fmt: skip
    assert asked.status_code == 200, asked.text
    told = client.get(f"/api/v1/nodes/gpu-a01/drain-preview?until={until}").get_json()
    assert told["running"]
    assert told["touched"]
    text = plain(page(world))
    assert f"{len(told['running'])} booking" in text
    assert "the node is idle at" in text
    assert text.count("cannot begin here; its holder has been told") == len(told["touched"])
    world.now += DAY * 3  # the controller's own round ends it; nothing of it is shown past its time
    assert "cannot begin here" not in plain(page(world))
