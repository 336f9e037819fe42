"""Every phase x every event: where it leads, or that it cannot be."""

from __future__ import annotations

from typing import get_args

import pytest

from agent.core.phases import TABLE, Event, ImpossibleTransition, after
from agent.core.types import Phase

PHASES, EVENTS = get_args(Phase), get_args(Event)
WITH_PROCESS = {"loading", "ready", "draining", "stopping", "blocked"}  # an engine's may exist

# A row an event, in the order of PHASES: off draining stopping freeing loading ready retry_wait blocked.
MATRIX = """
adopted_loading  loading -        -        -          -        -        -        -
adopted_ready    ready   -        -        -          -        -        -        -
prepare          freeing -        -        -          -        -        freeing  freeing
start            -       -        -        loading    -        -        -        -
not_started      -       -        -        -          freeing  -        -        -
ready            -       -        -        -          ready    -        -        -
close            -       -        -        -          -        draining -        -
call_off         -       ready    -        -          -        -        -        -
stop             -       stopping -        -          stopping stopping -        -
exit             -       stopping -        -          stopping stopping -        -
gone             -       -        freeing  -          -        -        -        freeing
stuck            -       -        blocked  -          -        -        -        blocked
held             -       -        -        blocked    -        -        -        blocked
rest             -       -        -        off        -        -        off      off
wait             retry_wait -     -        retry_wait -        -        -        retry_wait
"""
CASES = [
    (phase, row.split()[0], word)
    for row in MATRIX.strip().splitlines()
    for phase, word in zip(PHASES, row.split()[1:], strict=True)
]


def test_the_matrix_is_whole() -> None:
    assert len(CASES) == len(PHASES) * len(EVENTS)
    assert {event for _, event, _ in CASES} == set(EVENTS)


@pytest.mark.parametrize(("phase", "event", "leads_to"), CASES)
def test_transition(phase, event, leads_to) -> None:
    if leads_to == "-":
        with pytest.raises(ImpossibleTransition, match=event):
            after(phase, event)
    else:
        assert after(phase, event) == leads_to


def test_an_engine_is_started_only_when_memory_has_been_freed() -> None:
    assert [phase for (phase, event) in TABLE if event == "start"] == ["freeing"]


def test_a_process_is_left_only_by_its_being_gone() -> None:
    left = {
        event
        for (phase, event), then in TABLE.items()
        if phase in WITH_PROCESS - {"blocked"} and then not in WITH_PROCESS
    }
    assert left == {"gone", "not_started"}


def test_every_phase_can_be_reached_from_every_other() -> None:
    reach = {phase: {phase} for phase in PHASES}
    for _ in PHASES:
        for (phase, _event), then in TABLE.items():
            reach[phase] |= reach[then]
    assert all(found == set(PHASES) for found in reach.values())
