"""The phases of a channel as a table: what may happen in which phase, and where it leads.

off         nothing runs and nothing should
freeing     nothing runs; GPU memory is waited for, the next launch is looked at
loading     an engine has been started and does not answer yet
ready       the engine answers
draining    closed to new requests; those that run may finish
stopping    SIGTERM is out (or the engine ended by itself and its tree is being cleared away)
retry_wait  nothing runs, for what should run has failed and waits for its next try
blocked     nothing may be started: somebody else's process holds the GPU, or our own cannot be got rid of
"""

from __future__ import annotations

from typing import Literal

from agent.core.types import Phase

Event = Literal[
    "adopted_loading",  # an engine from before this agent's start, not ready yet
    "adopted_ready",
    "prepare",  # something is to be started
    "start",  # it is being started
    "not_started",  # the program could not be started
    "ready",
    "close",  # the drain begins
    "call_off",  # the target became again what still runs
    "stop",  # SIGTERM
    "exit",  # the engine ended by itself, or is given up
    "gone",  # nothing of it is left
    "stuck",  # still there 30 s after SIGKILL
    "held",  # a foreign process on the GPU
    "rest",  # nothing should run
    "wait",  # what should run waits for its next try
]

TABLE: dict[tuple[Phase, Event], Phase] = {
    ("off", "adopted_loading"): "loading",
    ("off", "adopted_ready"): "ready",
    ("off", "prepare"): "freeing",
    ("off", "wait"): "retry_wait",
    ("retry_wait", "prepare"): "freeing",
    ("retry_wait", "rest"): "off",
    ("freeing", "start"): "loading",
    ("freeing", "held"): "blocked",
    ("freeing", "rest"): "off",
    ("freeing", "wait"): "retry_wait",
    ("loading", "ready"): "ready",
    ("loading", "not_started"): "freeing",
    ("loading", "stop"): "stopping",
    ("loading", "exit"): "stopping",
    ("ready", "close"): "draining",
    ("ready", "stop"): "stopping",
    ("ready", "exit"): "stopping",
    ("draining", "call_off"): "ready",
    ("draining", "stop"): "stopping",
    ("draining", "exit"): "stopping",
    ("stopping", "gone"): "freeing",
    ("stopping", "stuck"): "blocked",
    ("blocked", "gone"): "freeing",
    ("blocked", "stuck"): "blocked",
    ("blocked", "held"): "blocked",
    ("blocked", "prepare"): "freeing",
    ("blocked", "rest"): "off",
    ("blocked", "wait"): "retry_wait",
}


class ImpossibleTransition(Exception):
    """An event in a phase that does not know it: a fault of the program, never of the world."""


def after(phase: Phase, event: Event) -> Phase:
    """The phase that follows. Raises ImpossibleTransition where the table has none."""
    try:
        return TABLE[phase, event]
    except KeyError:
        raise ImpossibleTransition(f"{event!r} cannot happen in phase {phase!r}") from None
