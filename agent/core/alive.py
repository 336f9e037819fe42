"""Is an engine that was ready still alive? One look after another goes in, a verdict comes out. Pure.

A time-out is not a death: long prompts keep an engine from answering for half an hour and more. So silence counts only
while nothing of the engine works (its GPUs and processors idle), for `hung` seconds on end; a new look at work starts
the count anew. Four ways to be dead:

1. device   its output names an error of the GPU's driver and it answers no small request any more: `crashed`
2. health   its health check answers, but with an error, for HEALTH_BAD seconds: `crashed`
3. errors   every small request fails (of an engine that could answer one before), ERRORS times running: `crashed`
4. hung     it answers neither requests nor its health check, and idles: `hung`

A small request (one token) is made only where there is reason to: no answer has come through the gateway for `probe`
seconds, several in a row failed, requests wait while everything idles, or the output names a driver's error. It has no
time-out of its own; it is pending until it is answered, which is what `hung` counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from agent.core.types import Category, Millis, Seconds

DEVICE_ERROR = re.compile(
    r"CUDA error|CUDA driver error|cudaError[A-Z]|CUBLAS_STATUS_(?!SUCCESS)|NCCL error|HIP error|hipError[A-Z]"
    r"|ErrorDeviceLost|device-side assert|uncorrectable ECC error",
)
HEALTH_BAD: Seconds = 30.0
DEVICE_SILENT: Seconds = 15.0  # after a driver's error there is little to wait for
ERRORS = 3
WAITING_IDLE: Seconds = 20.0  # requests run and nothing works: a slow reader, or an engine that hangs
PAUSE: Seconds = 60.0  # between two small requests at least
STREAK = 3  # requests through the gateway that failed one after another
Answer = Literal["answered", "refused", "failed"]  # refused: it answers, but does not do such requests
Health = Literal["ok", "bad", "silent"]


@dataclass(frozen=True, slots=True)
class Limits:
    """`hung`: how long silence must last; `probe`: how long without an answer before a small request (0: never)."""

    hung: Seconds = 60.0
    probe: Seconds = 600.0


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at `at`. `busy`: GPU or processors worked since the look before; `probe`: of a small request that has
    ended since, None where none has; `probing`: one is pending; `answered_at`: last good answer through the gateway."""

    at: Millis
    health: Health
    said: str = ""  # by the health check or the failed request, where it was no good
    busy: bool = False
    in_flight: int = 0
    answered_at: Millis = 0
    failed_in_a_row: int = 0
    probe: Answer | None = None
    probing: bool = False
    device_error: str = ""  # a line of new output
    on_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Signs:
    """What the looks before have left. Instants: since when without a break; 0: not so."""

    since: Millis  # looked after
    bad_since: Millis = 0
    silent_since: Millis = 0
    pending_since: Millis = 0
    idle_since: Millis = 0
    answers: bool = False  # it has answered a small request
    refuses: bool = False  # it does not do small requests
    errors: int = 0
    probed_at: Millis = 0
    device_error: str = ""


@dataclass(frozen=True, slots=True)
class Dead:
    """Fit for people; `detail` is the engine's own line."""

    category: Category
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    signs: Signs
    dead: Dead | None = None
    probe: bool = False  # make a small request now


def judge(before: Signs, look: Look, limits: Limits) -> Verdict:
    """What the newest look says, in the light of those before."""
    signs = _taken(before, look)
    dead = _device(signs, look) or _health(signs, look) or _errors(signs, look) or _hung(signs, look, limits)
    if dead is not None:
        return Verdict(signs, dead)
    if _wants_probe(signs, look, limits):
        return Verdict(replace(signs, probed_at=look.at, pending_since=look.at), probe=True)
    return Verdict(signs)


def _taken(before: Signs, look: Look) -> Signs:
    answered = look.probe == "answered"
    return replace(
        before,
        bad_since=(before.bad_since or look.at) if look.health == "bad" else 0,
        silent_since=(before.silent_since or look.at) if look.health == "silent" else 0,
        pending_since=(before.pending_since or look.at) if look.probing else 0,
        idle_since=0 if look.busy else before.idle_since or look.at,
        answers=before.answers or answered,
        refuses=before.refuses or look.probe == "refused",
        errors=0 if look.probe in ("answered", "refused") else before.errors + (look.probe == "failed"),
        device_error="" if look.probe in ("answered", "refused") else before.device_error or look.device_error,
    )


def _device(signs: Signs, look: Look) -> Dead | None:
    if not signs.device_error:
        return None
    silent = max(_lasted(signs.pending_since, look.at), _lasted(signs.silent_since, look.at))
    quiet = silent >= DEVICE_SILENT and not look.busy
    if quiet or look.probe == "failed":
        how = "answers every request with an error" if look.probe == "failed" else "answers no request any more"
        return Dead(
            "crashed",
            f"the engine met an error of the GPU or its driver and {how}; it is started anew. Where that happens again, "
            "see the node's kernel log (Xid) and the card's temperature, and try another version of driver or engine",
            signs.device_error,
        )
    return None


def _health(signs: Signs, look: Look) -> Dead | None:
    lasted = _lasted(signs.bad_since, look.at)
    if lasted < HEALTH_BAD:
        return None
    return Dead(
        "crashed", f"the engine's own health check has failed for {lasted:.0f} s; it is started anew", look.said
    )


def _errors(signs: Signs, look: Look) -> Dead | None:
    if look.probe != "failed" or signs.errors < ERRORS or not signs.answers:
        return None
    return Dead("crashed", "the engine answers every request with an error; it is started anew", look.said)


def _hung(signs: Signs, look: Look, limits: Limits) -> Dead | None:
    silent = max(_lasted(signs.pending_since, look.at), _lasted(signs.silent_since, look.at))
    lasted = min(silent, _lasted(signs.idle_since, look.at))
    if lasted < limits.hung:
        return None
    idle = "its GPU and the processor idle" if look.on_gpu else "it uses no processor time"
    what = "no request" if look.health == "ok" else "neither requests nor its health check"
    return Dead("hung", f"the engine hangs: for {lasted:.0f} s it has answered {what}, and {idle}; it is started anew")


def _wants_probe(signs: Signs, look: Look, limits: Limits) -> bool:
    if look.probing or look.health != "ok" or limits.probe <= 0 or signs.refuses:
        return False
    if signs.device_error or signs.errors:
        return True
    if signs.probed_at and look.at < signs.probed_at + _ms(PAUSE):
        return False
    if look.in_flight:  # while requests run and something works, nothing is asked
        return _lasted(signs.idle_since, look.at) >= WAITING_IDLE
    if look.failed_in_a_row >= STREAK:
        return True
    answered = max(signs.since, look.answered_at, signs.probed_at)
    return look.at >= answered + _ms(limits.probe)


def _lasted(since: Millis, now: Millis) -> Seconds:
    return (now - since) / 1000 if since else 0.0


def _ms(seconds: Seconds) -> Millis:
    return round(seconds * 1000)
