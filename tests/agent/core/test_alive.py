"""When an engine that was ready counts as dead, and when it is only slow: looks in, verdicts out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.alive import HEALTH_BAD, Dead, Limits, Look, Signs, judge

LIMITS = Limits(hung=60, probe=600)
STEP = 5000
READY = 1_800_000_000_000


class Engine:
    """Looks every 5 s; a small request is pending until the test says what became of it."""

    def __init__(self, limits: Limits = LIMITS, **look: Any) -> None:
        self.signs, self.limits, self.at, self.look = Signs(READY), limits, READY, look
        self.probing, self.probes = False, 0
        self.dead: Dead | None = None

    def seconds(self, seconds: float, probe: str | None = None, **look: Any) -> Dead | None:
        """So much time with these looks; a pending small request ends as `probe` says at the next look."""
        for _ in range(round(seconds * 1000 / STEP)):
            self.at += STEP
            ended = probe if self.probing and probe else None
            self.probing = self.probing and not ended
            fields = {"health": "ok", "probing": self.probing, "probe": ended, **self.look, **look}
            verdict = judge(self.signs, Look(at=self.at, **fields), self.limits)
            self.signs, self.dead = verdict.signs, verdict.dead
            if verdict.probe:
                assert not self.probing
                self.probing, self.probes = True, self.probes + 1
            if self.dead:
                break
        return self.dead

    def died_after(self) -> float:
        return (self.at - READY) / 1000


def test_an_idle_engine_without_traffic_is_asked_for_one_token_and_lives() -> None:
    e = Engine()
    assert e.seconds(590, "answered") is None
    assert e.probes == 0
    assert e.seconds(3600, "answered") is None
    assert e.probes == 6, "every 10 minutes and no oftener"


def test_answers_through_the_gateway_make_probes_needless() -> None:
    e = Engine()
    for _ in range(40):
        assert e.seconds(300, answered_at=e.at) is None
    assert e.probes == 0


def test_one_that_does_not_answer_while_nothing_works_is_hung_after_a_minute() -> None:
    e = Engine(on_gpu=True)
    dead = e.seconds(3600)
    assert dead is not None
    assert dead.category == "hung"
    assert "answered no request" in dead.reason
    assert "its GPU and the processor idle" in dead.reason
    assert e.died_after() == 660


def test_a_long_prompt_is_not_a_death() -> None:
    """One request, busy for an hour: health silent, later answering; nothing is asked and nobody is given up."""
    e = Engine(in_flight=1, busy=True)
    assert e.seconds(3600, health="silent") is None
    assert e.seconds(3600) is None
    assert e.probes == 0
    # Asked because it was silent too long; the answer comes after the long prompt.
    e = Engine()
    assert e.seconds(610) is None
    assert e.probing
    assert e.seconds(3600, in_flight=1, busy=True) is None
    assert e.seconds(10, "answered", busy=True) is None
    assert e.seconds(120) is None


def test_now_and_then_work_starts_the_count_anew() -> None:
    e = Engine(in_flight=1)
    for _ in range(30):
        assert e.seconds(50, health="silent") is None
        assert e.seconds(5, health="silent", busy=True) is None
    assert e.seconds(60, health="silent") is None
    dead = e.seconds(10, health="silent")
    assert dead is not None
    assert "neither requests nor its health check" in dead.reason


def test_a_slow_reader_is_told_from_a_hung_engine() -> None:
    """Requests run and everything idles: one token is asked for; the engine answers that."""
    e = Engine(in_flight=2)
    assert e.seconds(25) is None
    assert e.probes == 1
    assert e.seconds(600, "answered") is None
    assert e.probes > 1
    hangs = Engine(in_flight=2)
    assert hangs.seconds(600) is not None
    assert hangs.died_after() <= 90


def test_health_gone_bad_for_half_a_minute() -> None:
    e = Engine(health="bad", said="HTTP 503: dead")
    assert e.seconds(HEALTH_BAD) is None
    assert e.seconds(5, health="ok") is None
    assert e.seconds(HEALTH_BAD, busy=True) is None
    dead = e.seconds(5, busy=True)
    assert dead is not None
    assert (dead.category, dead.detail) == ("crashed", "HTTP 503: dead")
    assert "health check" in dead.reason


def test_a_drivers_error_in_the_output_is_looked_into_at_once() -> None:
    line = "CUDA error: an illegal memory access was encountered"
    e = Engine()
    assert e.seconds(5, device_error=line) is None
    assert e.probing
    dead = e.seconds(60)
    assert dead is not None
    assert (dead.category, dead.detail) == ("crashed", line)
    assert "error of the GPU" in dead.reason
    assert e.died_after() <= 25
    # Somebody's prompt that was only repeated in the output, or an error that was got over.
    e = Engine()
    assert e.seconds(5, device_error=line) is None
    assert e.seconds(300, "answered") is None
    assert e.probes == 1
    # It answers, but with an error.
    e = Engine()
    e.seconds(5, device_error=line)
    dead = e.seconds(5, "failed", said="HTTP 500: CUDA error")
    assert dead is not None
    assert "answers every request with an error" in dead.reason
    # Nothing is decided while it works.
    e = Engine(busy=True)
    e.seconds(5, device_error=line)
    assert e.seconds(600) is None


def test_failures_through_the_gateway_are_looked_into() -> None:
    e = Engine()
    assert e.seconds(600, "answered") is None
    assert e.seconds(100, "answered") is None
    probes = e.probes
    assert e.seconds(10, failed_in_a_row=3) is None
    assert e.probes == probes + 1
    dead = e.seconds(60, "failed", said="HTTP 500: broken")
    assert dead is not None
    assert (dead.category, dead.detail) == ("crashed", "HTTP 500: broken")
    assert e.probes == probes + 3


def test_an_engine_that_never_could_is_not_held_to_it() -> None:
    """An embedding model answers small requests with 400, a ranker perhaps with 500: its health check is what counts."""
    e = Engine(failed_in_a_row=9)
    assert e.seconds(7200, "refused") is None
    assert e.probes == 1
    e = Engine()
    assert e.seconds(7200, "failed") is None


def test_probe_0_never_asks() -> None:
    e = Engine(replace(LIMITS, probe=0), failed_in_a_row=9, in_flight=1)
    assert e.seconds(7200) is None
    assert e.probes == 0
    assert e.seconds(70, health="silent") is not None


LOOKS = st.fixed_dictionaries(
    {
        "health": st.sampled_from(["ok", "bad", "silent"]),
        "busy": st.booleans(),
        "in_flight": st.integers(0, 2),
        "failed_in_a_row": st.integers(0, 4),
        "device_error": st.sampled_from(["", "", "CUDA error: x"]),
    }
)


@given(st.lists(st.tuples(LOOKS, st.sampled_from([None, "answered", "refused", "failed"])), max_size=200))
def test_nobody_is_given_up_who_answers_or_works(looks: list[tuple[dict[str, Any], str | None]]) -> None:
    """Whatever is seen: `hung` only after a minute of idleness, and no small request beside a pending one."""
    e, idle_from = Engine(), READY
    for look, probe in looks:
        dead = e.seconds(5, probe, **look)
        if look["busy"]:
            idle_from = e.at
        if dead is None:
            continue
        if dead.category == "hung":
            assert e.at - idle_from >= 60_000
        return


@pytest.mark.parametrize("said", ["CUDA error: out of memory", "HIP error: 1", "vk::Queue::submit: ErrorDeviceLost"])
def test_words_of_a_broken_device(said: str) -> None:
    from agent.core.alive import DEVICE_ERROR

    assert DEVICE_ERROR.search(said)
    assert not DEVICE_ERROR.search("ggml_cuda_init: found 1 CUDA devices, no error")
