"""A minute of the fuzzer's hour: what it has found once, cases by seed, and Hypothesis, which makes what it finds small."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import strict
from tests.fuzz.cases import Case, make_case
from tests.fuzz.found import FOUND, GOOD
from tests.fuzz.run import Runner


@pytest.fixture
def runner() -> Iterator[Runner]:
    made = Runner()
    yield made
    made.close()


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(runner: Runner, name: str) -> None:
    runner.check(FOUND[name])


def test_many_cases_in_one_gateway(runner: Runner) -> None:
    forwarded = 0
    for seed in range(3000):
        _, engine = runner.check(make_case(random.Random(seed)))
        forwarded += len(engine)
    assert forwarded > 300, "the cases have drifted from what is right"


@settings(max_examples=150)
@given(st.randoms(use_true_random=False))
def test_cases_that_hypothesis_draws(dice: random.Random) -> None:
    made = Runner()
    try:
        made.check(make_case(dice))
    finally:
        made.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nX-T: 1\r\n\r\n",
        b"HTTP/1.0 200\r\n\r\nok",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
def test_the_rules_let_pass_what_is_right(runner: Runner, answer: bytes) -> None:
    for cuts in ((), tuple(range(1, len(GOOD)))):
        for pieces in ((answer,), tuple(answer[i : i + 1] for i in range(len(answer)))):
            line, (engine,) = runner.check(Case(GOOD, cuts, (pieces,)))
            assert strict.answers(line.written, [b"POST"], True)[0][-1].body == b"ok"
            assert engine.written.endswith(b'{"model":"the-model"}')


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (GOOD + GOOD, ""),
        (GOOD[:-1], "incomplete"),
        (GOOD.replace(b"\r\nHost", b"\nHost", 1), "malformed"),
        (GOOD.replace(b"Content-Length: 16", b"Content-Length: 16\r\nTransfer-Encoding: chunked"), "malformed"),
        (GOOD.replace(b"Host: g\r\n", b""), "malformed"),
        (GOOD.replace(b"Host:", b"Host :"), "malformed"),
        (GOOD + b"x", "incomplete"),
        (GOOD + b"x\r\n", "malformed"),
    ],
)
def test_the_second_opinion(data: bytes, end: str) -> None:
    assert strict.requests(data)[1].partition(":")[0] == end
