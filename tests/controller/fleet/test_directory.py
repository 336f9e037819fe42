"""What nodes are told of each other: places from plan and report, the best of each model, bounded, and only what changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.fleet import directory, service
from controller.fleet.directory import MOST_PLACES, Book
from controller.fleet.live import LiveChannel, LiveNode
from controller.fleet.places import Row, places_of
from controller.store.tables import Node
from protos import fleet_pb2, types_pb2
from tests.fleet_parts import Controller, FakeNode, linked, plan_bytes, step
from tests.parts import until

NOW = 1_800_000_000_000
MIN = 60_000


def launch(model: str, preset: str | None = None) -> types_pb2.Launch:
    return types_pb2.Launch(identity=f"id-{model}", model=model, preset=preset, engine="simulated")


def plan(*steps: types_pb2.Step, models: tuple[str, ...] = ("a", "b")) -> types_pb2.Plan:
    channel = types_pb2.ChannelPlan(channel="main", steps=steps, launches=[launch(m) for m in models])
    return types_pb2.Plan(node="n1", channels=[channel])


def at(minutes: int, model: str = "", why: str = "default", **more: Any) -> types_pb2.Step:
    return types_pb2.Step(at_ms=NOW + minutes * MIN, target=f"id-{model}" if model else "", why=why, **more)


def access(start: int, end: int) -> types_pb2.Access:
    return types_pb2.Access(
        reservation_id=f"r{start}",
        kind="model",
        holder_id="u-maya",
        participant_ids=["u-z", "u-a"],
        holder_name="Maya",
        starts_at_ms=NOW + start * MIN,
        ends_at_ms=NOW + end * MIN,
    )


def runs(model: str | None, phase: str = "ready", **more: Any) -> LiveNode:
    said = LiveChannel(phase, f"id-{model}" if model else "", model, phase_since=NOW - MIN, **more)
    return LiveNode(online=True, gateway_urls=("http://n1:8710",), relay_address="n1:8711", channels={"main": said})


def told(said: LiveNode, *steps: types_pb2.Step) -> list[tuple[str, bool, int, int, int]]:
    """(model, ready, from, until, reservations), minutes from now."""
    found = places_of("n1", said, plan(*steps), NOW)
    return [
        (r.model, r.ready, (r.start - NOW) // MIN, (r.end - NOW) // MIN if r.end else 0, len(r.windows)) for r in found
    ]


@pytest.mark.parametrize(
    ("said", "steps", "places"),
    [
        (runs("a"), [at(-5, "a")], [("a", True, -1, 0, 0)]),
        (runs("a"), [at(-5, "a"), at(10)], [("a", True, -1, 10, 0)]),
        (runs("a", "loading"), [at(-5, "a")], [("a", False, -5, 0, 0)]),
        (runs(None, "off"), [at(-5)], []),
        (  # a preload to come: offered from the booking's start on
            runs("a"),
            [
                at(-5, "a"),
                at(27, "b", "preload", prepares_for_ms=NOW + 30 * MIN),
                at(30, "b", "reserved", access=access(30, 60)),
                at(60, "a"),
            ],
            [("a", True, -1, 27, 0), ("b", False, 30, 60, 1), ("a", False, 60, 0, 0)],
        ),
        (  # the same while it is loaded
            runs("b", "loading"),
            [at(-1, "b", "preload", prepares_for_ms=NOW + 2 * MIN), at(2, "b", "reserved", access=access(2, 60))],
            [("b", False, 2, 0, 1)],
        ),
        (  # and once it is ready: open to all until the start
            runs("b"),
            [at(-1, "b", "preload", prepares_for_ms=NOW + 2 * MIN), at(2, "b", "reserved", access=access(2, 60))],
            [("b", True, -1, 0, 1)],
        ),
        (  # a fallback serves: what is reserved is not ready
            runs("a", fallback=True),
            [at(-5, "b", "reserved", fallback="id-a", access=access(-5, 60)), at(60, "a")],
            [("a", True, -1, 60, 1), ("b", False, -5, 60, 1), ("a", False, 60, 0, 0)],
        ),
        (runs("a"), [at(-5, "a", "reserved", access=access(-5, 60)), at(60, "a")], [("a", True, -1, 0, 1)]),
    ],
)
def test_places_of_a_node(said: LiveNode, steps: list[types_pb2.Step], places: list[tuple[object, ...]]) -> None:
    assert told(said, *steps) == places


def test_nobody_is_named() -> None:
    (row,) = places_of("n1", runs("a"), plan(at(-5, "a", "reserved", access=access(-5, 60))), NOW)
    place = row.message()
    assert b"Maya" not in place.SerializeToString()
    assert list(place.access[0].participant_ids) == ["u-a", "u-z"]
    assert (place.gateway_url, place.relay_address) == ("http://n1:8710", "n1:8711")


def row(node: str, model: str = "m", ready: bool = True, start: int = -1, relay: str = "r:1") -> Row:
    return Row(node, "c", "", relay, model, None, ready, NOW + start * MIN, 0, ())


def content(book: Book) -> list[fleet_pb2.Place]:
    return list(fleet_pb2.Directory.FromString(asyncio.run(book.content(NOW))).places)


def test_of_each_model_the_best_places_and_no_more() -> None:
    book = Book()
    for n in range(100):
        book.put(
            f"n{n:03}", [row(f"n{n:03}", relay="" if n < 50 else "r:1"), row(f"n{n:03}", start=n + 5, ready=False)]
        )
    found = content(book)
    assert [p.node for p in found if p.ready] == [f"n{n:03}" for n in range(50, 58)]
    assert [p.node for p in found if not p.ready] == [f"n{n:03}" for n in range(4)]


def test_the_size_is_bounded_and_every_model_is_there() -> None:
    book = Book()
    for n in range(30):
        book.put(f"n{n}", [row(f"n{n}", f"m{m}") for m in range(400)])
    found = content(book)
    assert len(found) == MOST_PLACES
    assert len({p.model for p in found}) == 400


def test_only_what_has_changed_is_other_bytes() -> None:
    book = Book()
    book.put("n1", [row("n1")])
    book.put("n2", [row("n2")])
    first = asyncio.run(book.content(NOW))
    book.put("n1", [row("n1")])
    assert asyncio.run(book.content(NOW)) == first
    book.put("n1", [])
    assert [p.node for p in content(book)] == ["n2"]
    book.put("n2", [])
    assert content(book) == []
    assert not book.nodes()


def test_every_node_hears_and_keeps_it(tmp_path: Any) -> None:
    """Through the real stream: n2 connects, n1 hears of its model, and of its going."""
    controller = Controller(tmp_path / "c")
    try:

        async def main() -> None:
            one, two = FakeNode("n1"), FakeNode("n2")
            controller.planner.set("n1", 1, 1, plan_bytes("n1", step(1)))
            async with linked(controller.enrolled("n1"), one):
                await until(lambda: one.directory is not None, 10, "the first directory")
                assert one.directory == []
                two.said = fleet_pb2.Status(
                    channels=[types_pb2.ChannelStatus(channel="main", phase="ready", running="id-a", running_model="a")]
                )
                controller.planner.set("n2", 1, 1, plan_bytes("n2", step(1)))
                async with linked(controller.enrolled("n2"), two):
                    await until(lambda: one.directory, 10, "n1 hears of n2")
                    (place,) = one.directory or []
                    assert (place["node"], place["model"], place["ready"]) == ("n2", "a", True)
                    await until(lambda: two.directory, 10, "n2 hears of itself: its agent leaves that out")
                    assert len(one.members) == 2 * 32
                    with controller.store.write() as session:
                        session.query(Node).filter_by(name="n2").one().removed_at = 1
                await until(lambda: len(one.members) == 32, 10, "who is removed may not relay any more")

        asyncio.run(main())
    finally:
        controller.close()


def test_a_node_that_falls_silent_is_out_at_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has closed its stream is kept for a while: its agent restarts, its gateway goes on. A dead one is not."""
    monkeypatch.setattr(service, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(service, "SILENT_SECONDS", 3.0)
    controller = Controller(tmp_path / "c")
    said = fleet_pb2.Status(
        channels=[types_pb2.ChannelStatus(channel="main", phase="ready", running="id-a", running_model="a")]
    )

    def known(node: FakeNode) -> list[str]:
        return [place["node"] for place in node.directory or []]

    async def main() -> None:
        one, two, three = (FakeNode(name) for name in ("n1", "n2", "n3"))
        two.said = three.said = said
        for node in (one, two, three):
            controller.planner.set(node.name, 1, 1, plan_bytes(node.name, step(1)))
        async with linked(controller.enrolled("n1"), one):
            async with linked(controller.enrolled("n3"), three), linked(controller.enrolled("n2"), two) as link:
                await until(lambda: known(one) == ["n2", "n3"], 20, "n1 hears of both")
                link.up.put = lambda _make: None  # type: ignore[method-assign]
                await until(lambda: known(one) == ["n3"], 20, "the silent one is out")
                monkeypatch.setattr(directory, "KEEP_SECONDS", 0.5)
            await until(lambda: known(one) == [], 20, "the other one is out after its while")

    try:
        monkeypatch.setattr(directory, "KEEP_SECONDS", 1000.0)
        asyncio.run(main())
    finally:
        controller.close()
