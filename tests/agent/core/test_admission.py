"""The access table: every kind of caller in every state of a channel, and its notes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.admission import Caller, ChannelView, FailureView, Target, admit, ends_at, retry_after
from agent.core.types import Access, Launch, Step
from agent.core.words import when

NOW = 1_800_000_000_000
MAYA, NOOR, TOMAS = Caller("maya"), Caller("noor"), Caller("tomas")
ROOT = Caller("root", role="admin")
CALLERS = {"holder": MAYA, "participant": NOOR, "stranger": TOMAS, "administrator": ROOT, "nobody": None}
A = Launch("id-a", "model-a", None, "llama.cpp", load_seconds=20)
D = Launch("id-d", "model-d", None, "llama.cpp", load_seconds=10)
RUNS_A, RUNS_D = Target("id-a", "model-a"), Target("id-d", "model-d")
START, END = NOW - 60_000, NOW + 600_000
FAILURE = FailureView("out of GPU memory; lower -c", "out_of_memory", NOW + 25_000)


def access(kind: str = "model") -> Access:
    return Access("r1", kind, "maya", frozenset({"noor"}), "Maya", START, END)  # type: ignore[arg-type]


RESERVED = (Step(START, A, "reserved", D, "r1", access()), Step(END, D, "default"))
EXCLUSIVE = (Step(START, None, "exclusive", None, "r1", access("exclusive")), Step(END, D, "default"))
FREE = (Step(START, D, "default"),)
IDLE = (Step(START, None, "idle"),)

# name: (channel, for holder and participant, for anyone else); an answer is (status, code, Retry-After)
SERVED, SHUT = (200, "", None), (403, "gpu_reserved", None)
STATES = {
    "not reserved, a model ready": (ChannelView("c", phase="ready", serving=RUNS_D, steps=FREE), SERVED, SERVED),
    "reserved, ready": (ChannelView("c", phase="ready", serving=RUNS_A, steps=RESERVED), SERVED, SHUT),
    "reserved, model loading": (
        ChannelView("c", phase="loading", loading=RUNS_A, loading_ready_at=NOW + 12_100, steps=RESERVED),
        (503, "model_loading", 13),
        SHUT,
    ),
    "reserved, loading is overdue": (
        ChannelView("c", phase="loading", loading=RUNS_A, loading_ready_at=NOW - 1, steps=RESERVED),
        (503, "model_loading", 5),
        SHUT,
    ),
    "reserved, draining to its model": (
        ChannelView(
            "c",
            open=False,
            phase="draining",
            serving=RUNS_D,
            switching_to="id-a",
            switching_ready_at=NOW + 80_000,
            steps=RESERVED,
        ),
        (503, "model_switching", 80),
        SHUT,
    ),
    "reserved, stopping": (
        ChannelView("c", open=False, phase="stopping", switching_to="id-a", switching_ready_at=NOW, steps=RESERVED),
        (503, "model_switching", 5),
        SHUT,
    ),
    "reserved, draining the fallback for a retry": (
        ChannelView(
            "c",
            open=False,
            phase="draining",
            serving=RUNS_D,
            fallback=True,
            switching_to="id-a",
            switching_ready_at=NOW + 7_000,
            failure=FAILURE,
            steps=RESERVED,
        ),
        (503, "model_switching", 7),
        SHUT,
    ),
    "reserved, default serving as fallback": (
        ChannelView("c", phase="ready", serving=RUNS_D, fallback=True, failure=FAILURE, steps=RESERVED),
        SERVED,
        SHUT,
    ),
    "reserved, fallback loading": (
        ChannelView(
            "c",
            phase="loading",
            loading=RUNS_D,
            loading_ready_at=NOW + 3_000,
            fallback=True,
            failure=FAILURE,
            steps=RESERVED,
        ),
        (503, "model_loading", 3),
        SHUT,
    ),
    "reserved, waiting for a retry, no fallback": (
        ChannelView("c", phase="retry_wait", failure=FAILURE, steps=RESERVED),
        (503, "model_failed", 25),
        SHUT,
    ),
    "reserved, failed, next try not known": (
        ChannelView("c", phase="retry_wait", failure=replace(FAILURE, retry_at=None), steps=RESERVED),
        (503, "model_failed", None),
        SHUT,
    ),
    "reserved, the agent has not begun the switch": (
        ChannelView("c", phase="ready", serving=RUNS_D, steps=RESERVED, drain=90, stop=30),
        (503, "model_switching", 80),  # 90 + 30 + 20 since the start, a minute ago
        SHUT,
    ),
    "reserved, another model is being loaded": (
        ChannelView("c", phase="loading", loading=Target("id-x", "x"), loading_ready_at=NOW + 9_000, steps=RESERVED),
        (503, "model_switching", 20),
        SHUT,
    ),
    "exclusive": (ChannelView("c", phase="off", steps=EXCLUSIVE), (503, "gpu_exclusive", None), SHUT),
    "exclusive, still being cleared": (
        ChannelView("c", open=False, phase="stopping", switching_to="", steps=EXCLUSIVE),
        (503, "gpu_exclusive", None),
        SHUT,
    ),
    "not reserved, draining": (
        ChannelView(
            "c",
            open=False,
            phase="draining",
            serving=RUNS_A,
            switching_to="id-d",
            switching_ready_at=NOW + 40_000,
            steps=FREE,
        ),
        (503, "model_switching", 40),
        (503, "model_switching", 40),
    ),
    "not reserved, loading": (
        ChannelView("c", phase="loading", loading=RUNS_D, loading_ready_at=NOW + 400, steps=FREE),
        (503, "model_loading", 1),
        (503, "model_loading", 1),
    ),
    "not reserved, nothing to load": (
        ChannelView("c", steps=IDLE),
        (503, "no_model", None),
        (503, "no_model", None),
    ),
    "not reserved, nothing to load yet": (
        ChannelView("c", steps=(*IDLE, Step(NOW + 60_000, A, "preload"))),
        (503, "no_model", 80),
        (503, "no_model", 80),
    ),
    "not reserved, failed": (
        ChannelView("c", phase="retry_wait", failure=FAILURE, steps=FREE),
        (503, "model_failed", 25),
        (503, "model_failed", 25),
    ),
    "reserved, GPU held by somebody else's process": (
        ChannelView("c", phase="blocked", blocked="python (pid 7, user eve)", failure=FAILURE, steps=RESERVED),
        (503, "gpu_busy", None),
        SHUT,
    ),
    "not reserved, GPU held by somebody else's process": (
        ChannelView("c", phase="blocked", blocked="python (pid 7, user eve)", steps=FREE),
        (503, "gpu_busy", None),
        (503, "gpu_busy", None),
    ),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("who", CALLERS)
def test_table(state: str, who: str) -> None:
    channel, inside, outside = STATES[state]
    got = admit(channel, CALLERS[who], NOW)
    wanted = {"holder": inside, "participant": inside, "nobody": (401, "invalid_api_key", None)}.get(who, outside)
    assert (got.status, got.code, got.retry_after) == wanted
    assert got.served == (got.status == 200)
    assert got.served or got.message.endswith(".")


def test_fallback_is_told_and_only_there() -> None:
    assert admit(STATES["reserved, default serving as fallback"][0], MAYA, NOW).fallback
    assert not admit(STATES["reserved, ready"][0], MAYA, NOW).fallback
    assert not admit(STATES["not reserved, a model ready"][0], MAYA, NOW).fallback


def test_a_default_that_nobody_called_fallback_does_not_serve_a_reservation() -> None:
    channel = ChannelView("c", phase="ready", serving=RUNS_D, fallback=False, steps=RESERVED)
    assert admit(channel, MAYA, NOW).code == "model_switching"


def test_a_fallback_of_an_older_plan_does_not_serve_a_reservation() -> None:
    channel = ChannelView("c", phase="ready", serving=Target("id-old", "old"), fallback=True, steps=RESERVED)
    assert admit(channel, MAYA, NOW).code == "model_switching"


@pytest.mark.parametrize(
    ("at", "who", "status"),
    [
        (START - 1, TOMAS, 200),
        (START, TOMAS, 403),
        (END - 1, TOMAS, 403),
        (END, TOMAS, 200),
        (START - 1, MAYA, 200),
        (START, MAYA, 200),
        (END - 1, MAYA, 200),
        (END, MAYA, 200),
    ],
)
def test_window_is_exact_to_the_millisecond(at: int, who: Caller, status: int) -> None:
    steps = (Step(START - 100_000, A, "preload", None, "r1", prepares_for=START), *RESERVED)
    assert admit(ChannelView("c", phase="ready", serving=RUNS_A, steps=steps), who, at).status == status


@pytest.mark.parametrize(("at", "status"), [(END - 1, 403), (END, 200), (END + 10**9, 200)])
def test_access_of_the_last_step_ends_by_itself(at: int, status: int) -> None:
    channel = ChannelView("c", phase="ready", serving=RUNS_A, steps=RESERVED[:1])
    assert admit(channel, TOMAS, at).status == status


def test_outside_reservations_whatever_is_loaded_answers_when_the_agent_is_away() -> None:
    steps = (*FREE, Step(NOW - 1, A, "preload", None, "r2", prepares_for=NOW + 180_000))
    assert admit(ChannelView("c", phase="ready", serving=RUNS_D, steps=steps), TOMAS, NOW).served


@pytest.mark.parametrize(("show", "named"), [("everyone", True), ("users", False), ("admins", False)])
def test_holder_is_named_only_where_everyone_may_see_it(show: str, named: bool) -> None:
    channel = replace(STATES["reserved, ready"][0], show_holders=show)
    said = admit(channel, TOMAS, NOW).message
    assert ("Maya" in said) == named
    assert when(END, NOW) in said


def test_messages_say_until_when_and_why() -> None:
    said = {name: admit(channel, MAYA, NOW).message for name, (channel, _, _) in STATES.items()}
    assert when(END, NOW) in said["exclusive"]
    assert when(NOW + 12_100, NOW) in said["reserved, model loading"]
    assert "lower -c" in said["reserved, waiting for a retry, no fallback"]
    assert when(NOW + 25_000, NOW) in said["reserved, waiting for a retry, no fallback"]
    assert "pid 7" in said["not reserved, GPU held by somebody else's process"]


def test_back_to_back_reservations_of_others_count_as_one_for_whom_is_shut_out() -> None:
    later = Access("r2", "model", "noor", frozenset(), "", END, END + 60_000)
    steps = (*RESERVED[:1], Step(END, D, "reserved", access=later), Step(END + 60_000, D, "default"))
    channel = ChannelView("c", phase="ready", serving=RUNS_A, steps=steps)
    shut = admit(channel, TOMAS, NOW)
    assert shut.until == END + 60_000
    assert when(END + 60_000, NOW) in shut.message
    assert shut.message.endswith("Open to all after that.")
    own = (*RESERVED[:1], Step(END, D, "reserved", access=replace(later, holder_id="tomas")))
    shut = admit(replace(channel, steps=own), TOMAS, NOW)
    assert shut.until == END
    assert shut.message.endswith("Your own reservation begins then.")


@pytest.mark.parametrize(
    ("ready_at", "seconds"),
    [(NOW - 1, 5), (NOW, 5), (NOW + 1, 1), (NOW + 1000, 1), (NOW + 1001, 2), (NOW + 61_500, 62)],
)
def test_retry_after_is_whole_seconds(ready_at: int, seconds: int) -> None:
    assert retry_after(ready_at, NOW) == seconds


def test_ends_at() -> None:
    ready = ChannelView("c", phase="ready", serving=RUNS_A, steps=RESERVED)
    assert ends_at(ready, MAYA, NOW) == END
    free = ChannelView("c", phase="ready", serving=RUNS_D, steps=FREE)
    assert ends_at(free, TOMAS, NOW) is None
    preload = ChannelView("c", serving=RUNS_D, steps=(*FREE, Step(NOW + 5000, A, "preload"), *RESERVED[1:]))
    assert ends_at(preload, TOMAS, NOW) == NOW + 5000
    overdue = ChannelView("c", serving=RUNS_A, steps=(Step(START, D, "default"),))
    assert ends_at(overdue, TOMAS, NOW) == NOW  # the agent has not begun a switch that is due
    spare = ChannelView("c", serving=RUNS_D, fallback=True, steps=(Step(START, A, "preload", D), *RESERVED[1:]))
    assert ends_at(spare, TOMAS, NOW) is None  # the fallback serves; the plan itself names no switch
    taken = Access("r2", "model", "maya", frozenset(), "", NOW + 9000, END)
    same = ChannelView("c", serving=RUNS_D, steps=(*FREE, Step(NOW + 9000, D, "reserved", access=taken)))
    assert ends_at(same, TOMAS, NOW) == NOW + 9000  # shut out, though nothing is switched
    assert ends_at(same, MAYA, NOW) is None


targets = st.sampled_from([None, RUNS_A, RUNS_D])
views = st.builds(
    ChannelView,
    st.just("c"),
    open=st.booleans(),
    phase=st.sampled_from(["off", "draining", "stopping", "freeing", "loading", "ready", "retry_wait", "blocked"]),
    serving=targets,
    loading=targets,
    loading_ready_at=st.none() | st.integers(NOW - 10**6, NOW + 10**6),
    fallback=st.booleans(),
    switching_to=st.sampled_from([None, "", "id-a", "id-d"]),
    switching_ready_at=st.none() | st.integers(NOW - 10**6, NOW + 10**6),
    failure=st.none() | st.just(FAILURE),
    blocked=st.sampled_from([None, "", "eve"]),
    steps=st.sampled_from([(), FREE, IDLE, RESERVED, EXCLUSIVE]),
)


@given(views, st.sampled_from(list(CALLERS.values())), st.integers(NOW - 10**6, NOW + 10**6))
def test_whatever_the_table_says(channel: ChannelView, caller: Caller | None, now: int) -> None:
    got = admit(channel, caller, now)
    assert got.status in (200, 401, 403, 503)
    assert got.retry_after is None or got.retry_after >= 1
    window = channel.steps in (RESERVED, EXCLUSIVE) and START <= now < END
    if caller is None:
        assert got.status == 401
    elif window and caller in (TOMAS, ROOT):
        assert got.status == 403
    elif got.served:
        assert channel.open
        assert channel.serving
        if window:
            assert channel.steps == RESERVED
            assert channel.serving == RUNS_A or (channel.serving == RUNS_D and got.fallback)
