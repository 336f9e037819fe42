"""Whatever a body holds, the answer is one that the call knows: never a 500, always the one error shape."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.api import ROUTES
from controller.api.route import Route
from controller.times import parse, text_of
from tests.controller.api.conftest import NOW, World, make

TEXT = st.text(max_size=40) | st.sampled_from(
    ["", "now", "n1/a", "n1/", "/", "small", "\x00", "\ud800", "é" * 300, "1e400"]
)
TIMES = (
    st.integers(-(10**14), 10**15).map(str)
    | st.integers(NOW - 10**6, NOW + 10**9).map(text_of)
    | st.datetimes().map(str)
)
ODD = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | TIMES
VALUE = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)
NAMES = [
    "channel",
    "kind",
    "model",
    "preset",
    "starts_at",
    "ends_at",
    "note",
    "participants",
    "holder",
    "version",
    "minutes",
    "reason",
]
GOOD: dict[str, Any] = {
    "channel": "n1/a",
    "kind": "model",
    "model": "small",
    "starts_at": "now",
    "ends_at": text_of(NOW + 60_000),
}
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("fuzz")
    w = make(folder)
    yield w
    w.store.close()


def answered(w: World, method: str, path: str, body: Any) -> None:
    answer = w.call(method, path, body, "maya")
    assert answer.status_code < 500, (body, answer.get_data(as_text=True))
    if answer.status_code >= 400:
        said = answer.get_json()
        assert set(said["error"]) == {"code", "message", "details"}
        if answer.status_code == 422:
            assert said["error"]["details"]
            assert said["problems"]
    elif path == "/reservations":
        w.good("POST", f"/reservations/{answer.get_json()['id']}/cancel", {}, "maya")


@QUICK
@given(change=st.dictionaries(st.sampled_from(NAMES) | TEXT, VALUE, max_size=4))
def test_bookings(world: World, change: dict[str, Any]) -> None:
    answered(world, "POST", "/reservations", {**GOOD, **change})
    answered(world, "POST", "/reservations/check", {**GOOD, **change})


@QUICK
@given(change=st.dictionaries(st.sampled_from(NAMES) | TEXT, VALUE, max_size=4), at=TEXT)
def test_edits_and_extensions(world: World, change: dict[str, Any], at: str) -> None:
    made = world.good("POST", "/reservations", GOOD, "maya")
    answered(world, "PATCH", f"/reservations/{made['id']}", {"version": 1, **change})
    answered(world, "POST", f"/reservations/{made['id']}/extend", change)
    world.good("POST", f"/reservations/{made['id']}/cancel", {}, "maya")


@QUICK
@given(body=VALUE)
def test_bodies_of_any_kind(world: World, body: Any) -> None:
    answer = world.call("POST", "/reservations", body, "maya")
    assert 400 <= answer.status_code < 500


@QUICK
@given(
    query=st.dictionaries(
        st.sampled_from(["from", "to", "channel", "holder", "status", "limit", "cursor"]), TEXT | TIMES
    )
)
def test_queries(world: World, query: dict[str, str]) -> None:
    clean = {k: v.encode(errors="replace").decode() for k, v in query.items()}
    assert world.call("GET", "/reservations", None, "maya", query_string=clean).status_code in (200, 422)


@QUICK
@given(instant=st.integers(31_536_000_000, 253_000_000_000_000), offset=st.integers(-23 * 60 - 59, 23 * 60 + 59))
def test_instants_survive_the_way_out_and_in(instant: int, offset: int) -> None:
    assert parse(text_of(instant)) == instant
    text = text_of(instant + offset * 60_000)
    assert text is not None
    zone = f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}"
    if "1971-01-03" < text < "9998-12-29":
        assert parse(text.replace("Z", zone)) == instant
        assert parse(text.replace("Z", zone).replace("+", " ")) == instant


PLACES = {"node": "n1", "name": "a", "id": "x"}
WRITES = [r for r in ROUTES if r.body is not None]
READS = [r for r in ROUTES if r.method == "GET"]


@pytest.mark.parametrize("route", WRITES, ids=lambda r: f"{r.method} {r.path}")
def test_every_write(world: World, route: Route) -> None:
    names = sorted(route.body.model_fields) if route.body else []
    path = re.sub(r"<(?:\w+:)?(\w+)>", lambda m: PLACES[m[1]], route.path)
    if path.startswith("/users/"):
        path = f"/users/{world.ids['tom']}"

    @settings(QUICK, max_examples=8)
    @given(body=st.dictionaries(st.sampled_from(names) | TEXT, VALUE, max_size=4))
    def send(body: dict[str, Any]) -> None:
        for who in ("root", "noor"):
            answer = world.call(route.method, path, body, who)
            assert answer.status_code < 500, (path, body, answer.get_data(as_text=True))

    send()


@pytest.mark.parametrize("route", READS, ids=lambda r: r.path)
def test_every_read(world: World, route: Route) -> None:
    names = [f.alias or n for n, f in route.query.model_fields.items()] if route.query else ["x"]

    @settings(QUICK, max_examples=8)
    @given(
        query=st.dictionaries(st.sampled_from(names), TEXT | TIMES, max_size=3),
        place=st.sampled_from(["a", "n1", "x y", "%"]),
    )
    def ask(query: dict[str, str], place: str) -> None:
        clean = {k: v.encode(errors="replace").decode() for k, v in query.items()}
        path = re.sub(r"<(?:\w+:)?(\w+)>", place, route.path)
        for who in ("root", "noor"):
            answer = world.call("GET", path, None, who, query_string=clean)
            assert answer.status_code < 500, (path, clean, answer.get_data(as_text=True))

    ask()
