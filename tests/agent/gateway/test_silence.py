"""Workers that hang: which they are, and that a real one is ended, another one started, and systemd told only then."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket

import pytest

from agent.gateway.silence import MOST_LOOKS, Silence
from protos.shared import systemd
from tests.fakes.gateway_node import Node, go
from tests.fakes.gateway_rig import Rig


def test_one_that_writes_nothing_new_hangs() -> None:
    silence = Silence(2)
    found = [silence.look([float(turn), 7.0]) for turn in range(1, MOST_LOOKS + 2)]
    assert found == [*([[]] * MOST_LOOKS), [1]]
    assert not silence.none_hangs
    assert silence.look([99.0, 8.0]) == []
    assert silence.none_hangs


def test_one_that_never_wrote_hangs_as_well() -> None:
    silence = Silence(1)
    for _ in range(MOST_LOOKS - 1):
        assert silence.look([0.0]) == []
    assert silence.look([0.0]) == [0]


def test_one_that_is_started_anew_has_its_time() -> None:
    silence = Silence(1)
    for _ in range(MOST_LOOKS):
        silence.look([0.0])
    silence.begins(0)
    assert silence.none_hangs
    assert [silence.look([0.0]) for _ in range(2 * MOST_LOOKS)] == [*([[]] * (2 * MOST_LOOKS - 1)), [0]]
    silence.begins(0)
    assert [silence.look([1.0]), *(silence.look([1.0]) for _ in range(MOST_LOOKS))] == [*([[]] * MOST_LOOKS), [0]]


@pytest.mark.system
def test_a_worker_that_hangs_is_ended_and_the_watchdog_not_fed_until_another_works(node: Node) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(node.folder / "notify"))
        systemd.setblocking(False)

        def feeds() -> int:
            """Times that the watchdog has been fed since this was asked last."""
            found = 0
            while True:
                try:
                    found += systemd.recv(4096).count(b"WATCHDOG=1")
                except BlockingIOError:
                    return found

        async def test() -> None:
            parent = node.gateway(
                SLOTSERVE_GATEWAY_WORKERS="2",
                NOTIFY_SOCKET=str(node.folder / "notify"),
                WATCHDOG_USEC="9000000",  # a feed in 3 s, a look each second
            )
            await node.up(2)
            await Rig.until(lambda: feeds() > 0, 20)
            victim = min(link.pid for link in node.agent._links)
            os.kill(victim, signal.SIGSTOP)
            told = re.compile(rf"gateway worker hangs, ended worker=[01] pid={victim}\b")
            await Rig.until(lambda: told.search(parent.output()) is not None, 20)
            await Rig.until(lambda: node.agent.connected == 2 and victim not in {x.pid for x in node.agent._links}, 20)
            assert (await node.ask()).status == 200
            feeds()
            await Rig.until(lambda: feeds() > 0, 20)

        go(node, test)


def test_the_watchdog_is_not_fed_while_a_worker_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    monkeypatch.setattr(systemd, "notify", lambda *lines: said.extend(lines))
    well = False

    async def test() -> None:
        nonlocal well
        feeding = asyncio.create_task(systemd.feed_watchdog(lambda: well))
        await asyncio.sleep(0.1)
        assert said == []
        well = True
        while not said:
            await asyncio.sleep(0.01)
        feeding.cancel()

    asyncio.run(asyncio.wait_for(test(), 20))
