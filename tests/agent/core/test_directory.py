"""Where a caller finds a model on other nodes: what counts as served, when the rest opens, and that no holder is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.admission import Caller, may_use
from agent.core.directory import Directory, Place, look, opens_at
from agent.core.types import Access

NOW = 1_800_000_000_000  # 2027-01-15 08:00 UTC
MIN = 60_000
MAYA, NOOR, TOMAS = Caller("maya", "Maya"), Caller("noor"), Caller("tomas")


def held(start: int, end: int, holder: str = "maya", kind: str = "model") -> Access:
    return Access("", kind, holder, frozenset({"noor"}), "", NOW + start, NOW + end)  # type: ignore[arg-type]


def place(node: str = "n2", start: int = -MIN, end: int | None = None, **more: object) -> Place:
    fields = {"ready": True, "preset": None, "relay": f"{node}:8711", "model": "a", **more}
    return Place(
        node, "main", f"http://{node}:8710", start=NOW + start, end=None if end is None else NOW + end, **fields
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("places", "caller", "served", "words"),
    [
        ([], TOMAS, [], ""),
        ([place()], TOMAS, ["n2"], "It is served now on n2/main (http://n2:8710)."),
        (
            [place(end=10 * MIN)],
            TOMAS,
            ["n2"],
            "It is served now on n2/main (http://n2:8710) until 08:10 UTC (in 10 min).",
        ),
        ([place(end=0)], TOMAS, [], ""),  # over
        ([place(ready=False)], TOMAS, [], "It is not ready yet on n2/main (http://n2:8710)."),
        (
            [place(windows=(held(-MIN, 5 * MIN),))],
            TOMAS,
            [],
            "It is on n2/main (http://n2:8710), reserved until 08:05 UTC (in 5 min). "
            "It is to be had next on n2/main (http://n2:8710) from 08:05 UTC (in 5 min) on.",
        ),
        ([place(windows=(held(-MIN, 5 * MIN),))], MAYA, ["n2"], "It is served now on n2/main (http://n2:8710)."),
        ([place(windows=(held(-MIN, 5 * MIN),))], NOOR, ["n2"], "It is served now on n2/main (http://n2:8710)."),
        (  # the reservation's end is the model's: nobody else gets it
            [place(end=5 * MIN, windows=(held(-MIN, 5 * MIN),))],
            TOMAS,
            [],
            "It is on n2/main (http://n2:8710), reserved until 08:05 UTC (in 5 min).",
        ),
        (  # back to back with somebody else's
            [place(windows=(held(-MIN, 5 * MIN), held(5 * MIN, 9 * MIN, "ines")))],
            TOMAS,
            [],
            "It is on n2/main (http://n2:8710), reserved until 08:09 UTC (in 9 min). "
            "It is to be had next on n2/main (http://n2:8710) from 08:09 UTC (in 9 min) on.",
        ),
        (
            [place(ready=False, start=30 * MIN, end=90 * MIN)],
            TOMAS,
            [],
            "It is to be had next on n2/main (http://n2:8710) from 08:30 UTC (in 30 min) on.",
        ),
        (  # to come, but for somebody else
            [place(ready=False, start=30 * MIN, end=90 * MIN, windows=(held(30 * MIN, 90 * MIN),))],
            TOMAS,
            [],
            "",
        ),
        (
            [place(ready=False, start=30 * MIN, end=90 * MIN, windows=(held(30 * MIN, 90 * MIN),))],
            MAYA,
            [],
            "It is to be had next on n2/main (http://n2:8710) from 08:30 UTC (in 30 min) on.",
        ),
        (  # own reservations first, whatever the turn
            [place("n2"), place("n3", windows=(held(-MIN, MIN),))],
            MAYA,
            ["n3", "n2"],
            "It is served now on n3/main (http://n3:8710), n2/main (http://n2:8710).",
        ),
        ([place(f"n{n}") for n in range(2, 7)], TOMAS, ["n2", "n3", "n4", "n5", "n6"], None),
    ],
)
def test_what_a_caller_hears(places: list[Place], caller: Caller, served: list[str], words: str | None) -> None:
    found = look(Directory.of(places), caller, "a", NOW)
    assert [p.node for p in found.served] == served
    if words is not None:
        assert found.words == words
    else:
        assert found.words.endswith("n4/main (http://n4:8710) and 2 more.")


def test_names_are_the_model_and_the_model_with_its_preset() -> None:
    directory = Directory.of([place(preset="long")])
    assert look(directory, TOMAS, "a", NOW).served
    assert look(directory, TOMAS, "a:long", NOW).served
    assert not look(directory, TOMAS, "a:short", NOW).words
    assert not look(directory, TOMAS, "b", NOW).words


def test_equal_places_are_taken_in_turns() -> None:
    directory = Directory.of([place("n2"), place("n3"), place("n4")])
    firsts = [look(directory, TOMAS, "a", NOW, turn).served[0].node for turn in range(4)]
    assert firsts == ["n2", "n3", "n4", "n2"]


def test_what_the_controller_said_before_it_was_lost_says_so() -> None:
    said = look(Directory.of([place()], as_of=NOW - 5 * MIN), TOMAS, "a", NOW).words
    assert said.endswith("(As known at 07:55 UTC; the controller is not reached since.)")
    assert look(Directory.of([], as_of=NOW), TOMAS, "a", NOW).words == ""


def test_programs_get_the_same_places() -> None:
    found = look(Directory.of([place(end=10 * MIN)]), TOMAS, "a", NOW)
    assert found.rows() == [
        {
            "node": "n2",
            "channel": "n2/main",
            "gateway_url": "http://n2:8710",
            "served": True,
            "until": "2027-01-15T08:10:00Z",
        }
    ]
    assert look(Directory.of([place(start=MIN)]), TOMAS, "a", NOW).next_at == NOW + MIN


windows = st.lists(
    st.tuples(st.integers(-20, 20), st.integers(1, 10), st.sampled_from(["maya", "ines", "secret-person"])), max_size=4
).map(lambda rows: tuple(held(s * MIN, (s + n) * MIN, who) for s, n, who in rows))
places = st.builds(
    place,
    node=st.sampled_from(["n2", "n3", "n4"]),
    start=st.integers(-10, 10).map(lambda m: m * MIN),
    end=st.none() | st.integers(11, 30).map(lambda m: m * MIN),
    ready=st.booleans(),
    windows=windows,
)


@given(st.lists(places, max_size=6), st.sampled_from([MAYA, NOOR, TOMAS]), st.integers(0, 5))
def test_served_is_what_the_caller_may_use_now(found: list[Place], caller: Caller, turn: int) -> None:
    answer = look(Directory.of(found), caller, "a", NOW, turn)
    for p in answer.served:
        assert p.ready
        assert p.start <= NOW < (p.end or NOW + 1)
        access = next((w for w in p.windows if w.start <= NOW < w.end), None)
        assert access is None or may_use(access, caller)
    assert not set(answer.served) & set(answer.known)
    assert "secret-person" not in answer.words
    assert "maya" not in answer.words
    if answer.next_at is not None:
        assert answer.next_at >= NOW
        assert not answer.served
    for p in found:
        at = opens_at(p, caller, NOW)
        if at is not None:
            access = next((w for w in p.windows if w.start <= at < w.end), None)
            assert access is None or may_use(access, caller)
