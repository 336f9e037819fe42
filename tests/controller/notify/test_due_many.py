"""A round where there is much: it reads what it needs only, and an outage of many bookings is told to everybody at once."""

from __future__ import annotations

import pytest

from controller.booking.draining import OFFERED_FOR
from controller.notify import due_scene
from tests.booking_world import Statements
from tests.controller.api.conftest import HOUR, MIN
from tests.controller.notify.conftest import Make, rounds
from tests.controller.notify.test_due import at, second_node
from tests.parts import BOTH

DATABASES = BOTH
HEAVY = ("nodes.gpus", "nodes.certificate", "nodes.own_settings", "channels.policy", "channels.current_target")


def test_a_round_reads_no_more_of_a_row_than_it_looks_at(making: Make) -> None:
    w = making()
    w.book(0, HOUR)
    going = rounds(w)
    going.step()
    with Statements(w.store) as sent:
        going.step()
    assert not [s for s in sent.texts if any(column in s for column in HEAVY)]


def test_of_many_lost_bookings_all_are_told_at_once_and_the_first_with_offers(
    making: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = making()
    second_node(w)
    count = OFFERED_FOR + 5
    for n in range(count):
        w.book((10 + 3 * n) * MIN, (13 + 3 * n) * MIN)
    sought = []
    monkeypatch.setattr(due_scene.free, "ranked", _counted(due_scene.free.ranked, sought))
    going = rounds(w)
    going.step()
    w.ctx.live.update("n1", online=False, since=w.now)
    told = at(w, w.now + MIN, going)
    assert told.count(("maya", "node_lost")) == count
    assert len(sought) == OFFERED_FOR
    texts = [n["text"] for n in w.get("/notifications?limit=100", "maya")["items"] if n["kind"] == "node_lost"]
    assert sum("Free elsewhere" in text for text in texts) == OFFERED_FOR
    assert sum("Your booking's page offers other channels" in text for text in texts) == 5
    assert not [text for text in texts if "No other channel" in text]
    assert at(w, w.now + MIN, going) == []
    assert len(sought) == OFFERED_FOR, "nothing is looked for that was told"


def _counted(real, calls: list):
    def ranked(*args, **more):
        calls.append(args)
        return real(*args, **more)

    return ranked
