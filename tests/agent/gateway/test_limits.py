"""Limits of concurrent requests: with one key, of all together, who gets a free place, and what is told."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.admission import Caller
from agent.core.types import Access
from agent.gateway.errors import Refusal
from agent.gateway.keys import Key
from agent.gateway.limits import WAITS_BEYOND, Limits
from agent.gateway.link import take
from tests.fakes.gateway_rig import NOW, Rig, chat, read_answer, reserved, run, step, target
from tests.fakes.stub_engine import complete, stream_for_ever

BOOKED = Access("r1", "model", "maya", frozenset({"noor"}), "Maya", 0, 10)


def key(user: str, number: int = 1) -> Key:
    return Key(f"k-{user}{number}", Caller(user), "")


class Channel:
    """A channel with limits; `begin` says whether somebody was let in."""

    def __init__(self, most: int = 0, with_key: int = 0) -> None:
        self.limits = Limits()
        self.limits.limit({"c": (most, with_key)})
        self.now = 0.0

    def begin(self, user: str, number: int = 1, reserved: Access | None = None) -> Refusal | None:
        refusal = self.limits.refusal("c", key(user, number), reserved, self.now)
        if refusal is None:
            self.limits.begun("c", key(user, number))
        return refusal

    def end(self, user: str, number: int = 1, seconds: float = 1.0) -> None:
        self.limits.ended("c", key(user, number), seconds)


def test_no_limit() -> None:
    channel = Channel()
    assert not any(channel.begin("ann") for _ in range(1000))
    assert not channel.limits.limited("c")
    assert channel.limits.report(0) == {}


def test_with_one_key() -> None:
    channel = Channel(with_key=2)
    assert [bool(channel.begin("ann")) for _ in range(3)] == [False, False, True]
    assert channel.begin("ann", 2) is None, "another key"
    assert channel.begin("ann").message.startswith("2 requests run with this key on channel c")  # type: ignore[union-attr]
    channel.end("ann")
    assert channel.begin("ann") is None


def test_one_alone_may_have_all_and_gives_half_to_the_next_who_waits() -> None:
    channel = Channel(most=4)
    assert [bool(channel.begin("ann")) for _ in range(5)] == [False] * 4 + [True]
    assert channel.begin("bob") is not None
    for _ in range(2):
        channel.end("ann")
        assert channel.begin("ann") is not None, "bob waits and has less"
        assert channel.begin("bob") is None
        assert channel.begin("bob") is not None
    channel.end("ann")
    assert channel.begin("ann") is None, "both have their half: it is hers again"
    assert channel.begin("bob") is not None


def test_many_keys_are_one_person() -> None:
    channel = Channel(most=4)
    for number in range(4):
        assert channel.begin("ann", number) is None
    assert channel.begin("bob") is not None
    channel.end("ann", 0)
    assert channel.begin("ann", 9) is not None
    assert channel.begin("bob") is None


def test_who_does_not_come_back_is_forgotten() -> None:
    channel = Channel(most=2)
    channel.begin("ann"), channel.begin("ann")
    refusal = channel.begin("bob")
    assert refusal is not None
    assert refusal.retry_after == 1
    channel.end("ann")
    assert channel.begin("ann") is not None
    channel.now += refusal.retry_after + WAITS_BEYOND + 0.1
    assert channel.begin("ann") is None


def test_retry_after_follows_how_long_requests_take() -> None:
    channel = Channel(most=2)
    for _ in range(30):
        channel.begin("ann")
        channel.end("ann", seconds=40.0)
    channel.begin("ann"), channel.begin("ann")
    assert channel.begin("bob").retry_after == 20  # type: ignore[union-attr]
    assert channel.begin("eve").retry_after == 40, "behind bob"  # type: ignore[union-attr]
    assert channel.begin("fay").retry_after == 60  # type: ignore[union-attr]
    assert channel.begin("gus").retry_after == 60, "never longer"  # type: ignore[union-attr]


def test_the_holder_finds_room_whatever_still_runs_of_others() -> None:
    channel = Channel(most=2)
    channel.begin("ann"), channel.begin("ann")
    assert channel.begin("bob") is not None
    assert channel.begin("maya", reserved=BOOKED) is None
    assert channel.begin("noor", reserved=BOOKED) is None
    assert channel.begin("maya", reserved=BOOKED) is not None, "those of the reservation are counted"


def test_a_limit_that_is_set_later_counts_what_runs_already() -> None:
    limits = Limits()
    limits.begun("c", key("ann"))
    limits.limit({"c": (2, 0)}, {"c": [key("ann")]})
    channel = Channel()
    channel.limits = limits
    assert [bool(channel.begin("bob")) for _ in range(2)] == [False, True]
    limits.limit({"c": (3, 0)}, {"c": [key("ann"), key("bob")]})
    assert [bool(channel.begin("bob")) for _ in range(2)] == [False, True], "what was counted is not counted again"
    limits.limit({})
    channel.end("ann"), channel.end("bob"), channel.end("bob")
    limits.limit({"c": (1, 0)})
    assert channel.begin("eve") is None


def test_what_runs_elsewhere_counts_and_who_waits_there() -> None:
    channel = Channel(most=4, with_key=3)
    channel.limits.others({"c": [["ann", "k-ann1", 3], ["bob", "k-bob1", 0]]}, 2)
    assert channel.begin("ann") is not None, "three with this key already"
    assert channel.begin("ann", 2) is not None, "bob waits there"
    assert channel.begin("eve") is None
    assert channel.begin("eve") is not None
    channel.now += 60.0  # nobody waits any more
    channel.limits.alone()
    assert [bool(channel.begin("eve")) for _ in range(2)] == [False, True], "its half of the places"
    channel.limits.others({}, 1)
    assert channel.begin("fay") is None


def test_the_report_says_who_runs_and_who_waits() -> None:
    channel = Channel(most=1)
    channel.begin("ann"), channel.begin("bob")
    assert sorted(channel.limits.report(0.0)["c"]) == [("ann", "k-ann1", 1), ("bob", "k-bob1", 0)]
    assert channel.limits.report(60.0) == {"c": [("ann", "k-ann1", 1)]}


STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.floats(0, 3)), max_size=80)


@given(st.integers(0, 5), st.integers(0, 3), STEPS)
@settings(max_examples=200, deadline=None)
def test_never_more_than_the_limits_and_nobody_shut_out_for_ever(most: int, with_key: int, steps: list) -> None:
    channel = Channel(most, with_key)
    running: list[str] = []
    for user, begins, passed in steps:
        channel.now += passed
        if begins:
            if channel.begin(user) is None:
                running.append(user)
        elif user in running:
            running.remove(user)
            channel.end(user)
        assert not most or len(running) <= most
        assert not with_key or all(running.count(u) <= with_key for u in running)
    for user in running:
        channel.end(user)
    for user in "abcd"[: most or 4]:
        assert channel.begin(user) is None, "an empty channel has room for each"


@pytest.mark.parametrize("limits", [(2, 0), (0, 2)])
def test_a_client_is_told_in_openais_words_and_let_in_again(limits: tuple[int, int]) -> None:
    async def test(rig: Rig) -> None:
        rig.gateways.set_settings({"limits": {"main": limits}})
        await rig.serve_default()
        rig.engine.behaviour = stream_for_ever
        streams = [await rig.open(chat(True)) for _ in range(2)]
        for reader, _ in streams:
            await reader.readuntil(b"\n\n")
        answer = await rig.call()
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "too_many_requests", "1")
        error = answer.json()["error"]
        assert (error["type"], answer.headers["x-slotserve-channel"]) == ("rate_limit_error", "main")
        assert "channel main" in error["message"].lower()
        assert rig.gateway.running.in_flight["main"] == 2, "a refused one is none"
        streams[0][1].close()
        rig.engine.behaviour = complete
        await rig.until(lambda: rig.gateway.running.in_flight["main"] == 1)
        assert (await rig.call()).status == 200
        rig.gateways.set_settings({"limits": {}})
        await rig.until(lambda: not rig.gateway.table.limits)
        assert [(await rig.call()).status for _ in range(3)] == [200] * 3
        streams[1][1].close()
        await rig.drained()

    run(test)


def test_another_channel_that_serves_it_takes_what_one_may_not() -> None:
    async def test(rig: Rig) -> None:
        rig.gateways.set_settings({"limits": {"a": (1, 0), "b": (2, 0)}})
        await rig.publish(rig.entry("a", serving=target()), rig.entry("b", serving=target()))
        rig.engine.behaviour = stream_for_ever
        streams = []
        for _ in range(3):
            streams.append(await rig.open(chat(True)))
            await streams[-1][0].readuntil(b"\n\n")
        assert rig.gateway.running.in_flight == {"a": 1, "b": 2}
        assert (await rig.call()).code == "too_many_requests"
        assert (await rig.call(path="/channels/a/v1/chat/completions")).code == "too_many_requests"
        for _, writer in streams:
            writer.close()

    run(test)


def test_at_a_reservations_begin_the_holder_is_not_kept_out_by_those_who_finish() -> None:
    async def test(rig: Rig) -> None:
        rig.gateways.set_settings({"limits": {"main": (1, 0)}})
        steps = [step(NOW - 1000, target()), reserved(NOW + 1000, NOW + 60_000, target())]
        await rig.publish(rig.entry(serving=target(), steps=steps))
        rig.engine.behaviour = stream_for_ever
        _, writer = await rig.open(chat(True))
        await rig.until(lambda: rig.gateway.running.in_flight["main"] == 1)
        assert (await rig.call("maya")).code == "too_many_requests"
        rig.now = NOW + 1000
        rig.engine.behaviour = complete
        assert (await rig.call("maya")).status == 200
        assert (await rig.call("tomas")).code == "gpu_reserved"
        writer.close()

    run(test)


def test_a_burst_never_runs_more_than_the_limit() -> None:
    async def test(rig: Rig) -> None:
        rig.gateways.set_settings({"limits": {"main": (5, 3)}})
        await rig.serve_default()
        most = 0

        async def one(who: str) -> int:
            nonlocal most
            reader, writer = await rig.open(chat(who=who))
            answer = await read_answer(reader)
            most = max(most, rig.gateway.running.in_flight["main"])
            writer.close()
            return answer.status

        answers = await asyncio.gather(*(one(who) for _ in range(50) for who in ("maya", "noor", "tomas")))
        assert set(answers) <= {200, 429}
        assert answers.count(200) >= 5
        assert most <= 5
        await rig.drained()
        assert rig.gateway.running.limits.report(rig.gateway.loop.time() + 99) == {}

    run(test)


def test_the_channel_with_the_fewest_requests_in_all_processes_answers() -> None:
    async def test(rig: Rig) -> None:
        await rig.publish(rig.entry("a", target()), rig.entry("b", target()))
        assert (await rig.call()).headers["x-slotserve-channel"] == "a", "by name, where none has fewer"
        take(rig.gateway, {"type": "others", "channels": {"a": 1, "b": 0}, "callers": {}, "gateways": 2})
        assert (await rig.call()).headers["x-slotserve-channel"] == "b"
        take(rig.gateway, {"type": "others", "channels": {}, "callers": {}, "gateways": 1})
        assert (await rig.call()).headers["x-slotserve-channel"] == "a"

    run(test)
