"""Failures of (channel, target): how often, when the next try is due, when an episode ends and what is told of it.

A failure is kept by the target's identity, across steps and restarts. Its interval grows with the failures of the
episode (`retry_min` doubling to `retry_max`) and is counted from the later of the end of the failed attempt and the
moment the fallback became ready. Being ready ends the failure as shown; the episode ends only after STEADY seconds
ready, with an edit of what is launched, or with "retry now". The recovery is told once an episode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from agent.core.types import Launch, Millis, Seconds, Timing

STEADY: Seconds = 600.0  # ready for so long: the next failure is a new episode
KEPT = 64  # records of targets that the timetable does not name any more


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a target that failed. `count` 0: the episode is over, only its recovery is still to be told."""

    identity: str
    model: str
    preset: str | None
    category: str
    reason: str
    detail: str
    count: int
    since: Millis  # first failure of the episode
    last: Millis  # end of the last failed attempt
    episode: str
    waiting: bool = True  # until it has been ready again
    recovered: bool = False  # the recovery has been told
    load_timeout: Seconds | None = None  # as it was launched; another value is an edit
    reservation_id: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """What time has done to a record of a target that is ready."""

    failure: Failure | None
    tell_recovery: bool = False


def moved(failures: Mapping[str, Failure], by: Millis) -> Mapping[str, Failure]:
    """Node time was corrected by so many ms: how long ago a failure was stays as it was."""
    return {f.identity: replace(f, since=f.since + by, last=f.last + by) for f in failures.values()}


def not_ahead(failures: Mapping[str, Failure], now: Millis) -> Mapping[str, Failure]:
    """Records of a clock that was ahead: what has failed has failed by now, and is not waited for longer than for that."""
    return {f.identity: replace(f, since=min(f.since, now), last=min(f.last, now)) for f in failures.values()}


def interval(count: int, timing: Timing) -> Seconds:
    """Seconds to the next try after the `count`th failure of an episode."""
    if count < 1:
        return 0.0
    return min(timing.retry_min * 2.0 ** min(count - 1, 60), max(timing.retry_max, timing.retry_min))


def failed(
    before: Failure | None,
    launch: Launch,
    *,
    category: str,
    reason: str,
    detail: str,
    now: Millis,
    reservation_id: str = "",
) -> Failure:
    """The record after one more failure: the next of its episode, or the first of a new one."""
    goes_on = before is not None and before.count > 0
    since = before.since if before is not None and goes_on else now
    return Failure(
        identity=launch.identity,
        model=launch.model,
        preset=launch.preset,
        category=category,
        reason=reason,
        detail=detail,
        count=before.count + 1 if before is not None and goes_on else 1,
        since=since,
        last=now,
        episode=before.episode if before is not None and goes_on else f"{launch.identity[:16]}-{now}",
        recovered=before.recovered if before is not None and goes_on else False,
        load_timeout=launch.load_timeout,
        reservation_id=reservation_id,
    )


def retry_at(failure: Failure, fallback_ready_at: Millis | None, timing: Timing) -> Millis:
    """When the target may be tried again; `fallback_ready_at` is None where no fallback serves."""
    return max(failure.last, fallback_ready_at or failure.last) + round(interval(failure.count, timing) * 1000)


def became_ready(failure: Failure) -> Failure:
    """Ready: nothing is shown any more, the episode goes on."""
    return replace(failure, waiting=False)


def settle(failure: Failure, ready_at: Millis, now: Millis, timing: Timing) -> Settled:
    """The record of a target that is ready since `ready_at`: recovery due, episode over, or as it was."""
    if failure.waiting:
        failure = became_ready(failure)
    tell = not failure.recovered and now >= ready_at + round(timing.buffer * 1000)
    if tell:
        failure = replace(failure, recovered=True)
    if now >= ready_at + round(STEADY * 1000):
        failure = replace(failure, count=0)
    return Settled(None if failure.count == 0 and failure.recovered else failure, tell)


def settles_at(failure: Failure, ready_at: Millis, timing: Timing) -> Millis:
    """When `settle` next changes something for a target that stays ready."""
    steady = ready_at + round(STEADY * 1000)
    told = ready_at + round(timing.buffer * 1000)
    if failure.recovered:
        return steady
    return told if failure.count == 0 else min(steady, told)


def forgive(failure: Failure) -> Failure | None:
    """The episode ends ("retry now", an edit): tried at once, the next failure is a first one."""
    return None if failure.recovered else replace(failure, count=0, waiting=False)


def take_edits(failures: Mapping[str, Failure], launches: Iterable[Launch | None]) -> Mapping[str, Failure]:
    """The records after looking at what would be launched now: a model and preset that is launched otherwise than when
    it failed has been edited. The same mapping where nothing was."""
    now = {launch.identity: launch for launch in launches if launch is not None}
    result = dict(failures)
    for failure in failures.values():
        same = now.get(failure.identity)
        if same is not None and (same.load_timeout == failure.load_timeout or not failure.waiting):
            continue
        launch = same or next((x for x in now.values() if (x.model, x.preset) == (failure.model, failure.preset)), None)
        if launch is None:
            continue
        del result[failure.identity]
        rest = forgive(failure)
        if rest is not None and launch.identity not in result:
            result[launch.identity] = replace(rest, identity=launch.identity, load_timeout=launch.load_timeout)
    return failures if result == failures else result


def prune(failures: Mapping[str, Failure]) -> Mapping[str, Failure]:
    """The newest KEPT records: identities that were edited away never come back."""
    if len(failures) <= KEPT:
        return failures
    newest = sorted(failures.values(), key=lambda f: f.last)[-KEPT:]
    return {f.identity: f for f in newest}


def to_json(failures: Mapping[str, Failure]) -> list[dict[str, Any]]:
    """The records as JSON takes them."""
    return [asdict(f) for f in failures.values()]


def from_json(rows: Any) -> dict[str, Failure]:
    """The records of `to_json`. Raises ValueError where they are not such (an unknown key is left out)."""
    if not isinstance(rows, list):
        raise ValueError("failure records: a list is expected")
    known = {f.name for f in fields(Failure)}
    result = {}
    for row in rows:
        if not isinstance(row, dict):
            raise ValueError("failure records: each is an object")
        try:
            failure = Failure(**{k: v for k, v in row.items() if k in known})
        except TypeError as err:
            raise ValueError(f"failure records: {err}") from None
        numbers = (failure.count, failure.since, failure.last)
        if not isinstance(failure.identity, str) or not all(isinstance(n, int) for n in numbers):
            raise ValueError("failure records: identity is a string; count, since and last are whole numbers")
        result[failure.identity] = failure
    return result
