"""Which channel answers: the rules in their order, names in every spelling, and what the list of models says."""

from __future__ import annotations

import pytest

from agent.core.admission import Caller, ChannelView, FailureView, Target
from agent.core.routing import Route, models, route
from agent.core.types import Access, Launch, Step

NOW = 1_800_000_000_000
START, END = NOW - 60_000, NOW + 600_000
MAYA, TOMAS = Caller("maya"), Caller("tomas")


def launch(model: str, preset: str | None = None) -> Launch:
    return Launch(f"id-{model}-{preset}", model, preset, "llama.cpp", load_seconds=10)


def runs(model: str, preset: str | None = None) -> Target:
    return Target(f"id-{model}-{preset}", model, preset)


def reserved(
    what: Launch | None, holder: str = "maya", fallback: Launch | None = None, then: Launch | None = None
) -> tuple[Step, ...]:
    kind = "model" if what else "exclusive"
    access = Access("r", kind, holder, frozenset(), "", START, END)  # type: ignore[arg-type]
    return (Step(START, what, "reserved", fallback, "r", access), Step(END, then, "default"))


def free(name: str, model: str, preset: str | None = None, **more: object) -> ChannelView:
    steps = (Step(START, launch(model, preset), "default"),)
    return ChannelView(name, phase="ready", serving=runs(model, preset), steps=steps, **more)  # type: ignore[arg-type]


def loading(name: str, model: str) -> ChannelView:
    steps = (Step(START, launch(model), "default"),)
    return ChannelView(name, phase="loading", loading=runs(model), loading_ready_at=NOW + 5000, steps=steps)


def ask(
    channels: list[ChannelView],
    model: str | None,
    caller: Caller | None = TOMAS,
    named: str | None = None,
    in_flight: dict[str, int] | None = None,
) -> Route:
    return route(channels, in_flight or {}, caller, model, named, NOW)


def chosen(answer: Route) -> str:
    return answer.channel.name if answer.channel else f"{answer.admission.status} {answer.admission.code}"


OWN_READY = ChannelView("own", phase="ready", serving=runs("a"), steps=reserved(launch("a")))
OWN_LOADING = ChannelView(
    "own", phase="loading", loading=runs("a"), loading_ready_at=NOW + 9000, steps=reserved(launch("a"))
)
OWN_EXCLUSIVE = ChannelView("own", steps=reserved(None, then=launch("d")))
IN_FALLBACK = ChannelView(
    "own",
    phase="ready",
    serving=runs("d"),
    fallback=True,
    failure=FailureView("broken"),
    steps=reserved(launch("a"), fallback=launch("d")),
)


@pytest.mark.parametrize(
    ("channels", "model", "caller", "answer"),
    [
        # names
        ([free("x", "d")], "d", TOMAS, "x"),
        ([free("x", "d", "fast")], "d", TOMAS, "x"),
        ([free("x", "d", "fast")], "d:fast", TOMAS, "x"),
        ([free("x", "d", "fast")], "d:slow", TOMAS, "404 model_not_found"),
        ([free("x", "d")], "d:fast", TOMAS, "404 model_not_found"),
        ([free("x", "org/My Model")], "org/My Model", TOMAS, "x"),
        ([free("x", "d")], "auto", TOMAS, "x"),
        ([free("x", "d")], "", TOMAS, "x"),
        ([free("x", "d")], None, TOMAS, "x"),
        ([free("x", "d")], "other", TOMAS, "404 model_not_found"),
        ([], "d", TOMAS, "404 model_not_found"),
        ([], "auto", TOMAS, "503 no_model"),
        ([free("x", "d")], "d", None, "401 invalid_api_key"),
        # 1: own running reservations first
        ([free("x", "a"), OWN_READY], "a", MAYA, "own"),
        ([free("x", "d"), OWN_READY], "auto", MAYA, "own"),
        ([free("x", "d"), OWN_READY], "d", MAYA, "x"),
        ([free("x", "d"), OWN_READY], "auto", TOMAS, "x"),
        ([free("x", "d"), OWN_LOADING], "auto", MAYA, "503 model_loading"),
        ([free("x", "d"), OWN_LOADING], "a", MAYA, "503 model_loading"),
        ([free("x", "a"), OWN_LOADING], "a", MAYA, "x"),
        ([free("x", "d"), OWN_EXCLUSIVE], "auto", MAYA, "x"),
        ([OWN_EXCLUSIVE], "auto", MAYA, "503 gpu_exclusive"),
        ([OWN_EXCLUSIVE], "d", MAYA, "503 gpu_exclusive"),
        # in fallback also the reserved name
        ([IN_FALLBACK], "a", MAYA, "own"),
        ([IN_FALLBACK], "d", MAYA, "own"),
        ([IN_FALLBACK], "auto", MAYA, "own"),
        ([IN_FALLBACK], "a", TOMAS, "403 gpu_reserved"),
        # 3: the most hopeful refusal
        ([loading("x", "d"), OWN_READY], "auto", TOMAS, "503 model_loading"),
        ([OWN_READY], "a", TOMAS, "403 gpu_reserved"),
        ([OWN_READY], "auto", TOMAS, "403 gpu_reserved"),
        (
            [
                ChannelView("f", phase="retry_wait", failure=FailureView("x", "", NOW + 1), steps=free("f", "d").steps),
                ChannelView("b", phase="blocked", blocked="eve", steps=free("b", "d").steps),
            ],
            "d",
            TOMAS,
            "503 model_failed",
        ),
        (
            [ChannelView("b", phase="blocked", blocked="eve", steps=free("b", "d").steps), OWN_READY],
            "auto",
            TOMAS,
            "503 gpu_busy",
        ),
        # by target next: known, but not now
        ([ChannelView("own", phase="ready", serving=runs("a"), steps=reserved(launch("a"), then=launch("d")))],
         "d", TOMAS, "403 gpu_reserved"),
        ([ChannelView("own", phase="ready", serving=runs("a"), steps=reserved(launch("a"), then=launch("d")))],
         "d", MAYA, "503 model_switching"),
        ([ChannelView("x", phase="draining", open=False, serving=runs("d"), steps=(Step(START, launch("a"), "preload"),))],
         "d", TOMAS, "503 model_switching"),
    ],
)  # fmt: skip
def test_choice(channels: list[ChannelView], model: str | None, caller: Caller | None, answer: str) -> None:
    assert chosen(ask(channels, model, caller)) == answer
    assert chosen(ask(channels[::-1], model, caller)) == answer  # the order of the table says nothing


def test_fewest_running_requests_then_by_name() -> None:
    both = [free("b", "d"), free("a", "d")]
    assert chosen(ask(both, "d")) == "a"
    assert chosen(ask(both, "d", in_flight={"a": 1})) == "b"
    assert chosen(ask(both, "auto", in_flight={"a": 1, "b": 1})) == "a"


@pytest.mark.parametrize(
    ("channels", "model", "caller", "answer"),
    [
        ([free("x", "d"), free("y", "e")], "auto", TOMAS, "x"),
        ([free("x", "d"), free("y", "e")], "e", TOMAS, "404 model_not_found"),
        ([free("y", "e")], "auto", TOMAS, "404 channel_not_found"),
        ([ChannelView("x", phase="ready", serving=runs("a"), steps=reserved(launch("a")))], "a", MAYA, "x"),
        ([ChannelView("x", phase="ready", serving=runs("a"), steps=reserved(launch("a")))], "b", MAYA,
         "404 model_not_found"),
        ([ChannelView("x", phase="ready", serving=runs("a"), steps=reserved(launch("a")))], "b", TOMAS,
         "403 gpu_reserved"),
        ([ChannelView("x", steps=reserved(None))], "b", MAYA, "503 gpu_exclusive"),
        ([loading("x", "d")], "d", TOMAS, "503 model_loading"),
        ([loading("x", "d")], "auto", TOMAS, "503 model_loading"),
        ([loading("x", "d")], "e", TOMAS, "404 model_not_found"),
        ([OWN_READY, free("x", "d")], "auto", MAYA, "x"),
    ],
)  # fmt: skip
def test_named_channel_alone_is_asked(channels: list[ChannelView], model: str, caller: Caller, answer: str) -> None:
    assert chosen(ask(channels, model, caller, named="x")) == answer


def test_not_found_lists_what_is_there() -> None:
    said = ask([free("x", "d", "fast"), OWN_READY], "nonsense").admission.message
    assert "'nonsense'" in said
    assert "d:fast" in said
    assert "auto" in said
    assert " a," not in said  # reserved by somebody else: not there for this caller


def test_models_lists_what_the_caller_may_use_now() -> None:
    channels = [free("x", "d", "fast"), OWN_READY, loading("y", "later")]
    assert [m["id"] for m in models(channels, MAYA, NOW)] == ["a", "d", "d:fast", "auto"]
    assert [m["id"] for m in models(channels, TOMAS, NOW)] == ["d", "d:fast", "auto"]
    assert [m["id"] for m in models([IN_FALLBACK], MAYA, NOW)] == ["a", "d", "auto"]
    assert models([OWN_READY], MAYA, NOW)[0]["until"] == "2027-01-15T08:10:00Z"


def test_a_refusal_says_which_channel_it_is_about() -> None:
    assert route([OWN_READY], {}, MAYA, "auto", None, NOW).about == OWN_READY.name
    shut = route([OWN_READY], {}, TOMAS, "auto", None, NOW)
    assert (shut.admission.code, shut.about) == ("gpu_reserved", OWN_READY.name)
    assert route([OWN_READY], {}, TOMAS, "nonsense", OWN_READY.name, NOW).about == OWN_READY.name
    assert route([OWN_READY], {}, TOMAS, "nonsense", "nowhere", NOW).about == ""
