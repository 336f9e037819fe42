"""A channel's view as others see it: its entry in the gateways' table, its status for the controller, its events.

Pure renderings with exactly the fields of `agent/gateway/ipc.py` (CHANNEL) and of the protocol's ChannelStatus,
Failure, LoadResult and Event, so that `ChannelStatus(**status(...))` is the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.core.choice import choose, fallback_of, next_try, serves_as_fallback, waiting
from agent.core.retry import Failure
from agent.core.step import ready_estimate
from agent.core.types import Launch, Millis, Seconds, Step
from agent.core.view import ChannelView, Running
from agent.interfaces import Holder, Process, Trouble

SHUT = ("draining", "stopping", "freeing")


def entry(
    channel: str, view: ChannelView, process: Process | None, steps: list[dict[str, Any]], now: Millis
) -> dict[str, Any]:
    """The channel in the gateways' table; `steps` from `timetable`. Without changes in the view it stays the same."""
    running, shut = view.process, view.phase in SHUT
    serves = running is not None and process is not None and view.phase in ("ready", "draining")
    failure = shown_failure(view)
    return {
        "name": channel,
        "open": not shut,
        "phase": view.phase,
        "serving": _serving(process) if serves and process is not None else None,
        "loading": _loading(view) if view.phase == "loading" else None,
        "fallback": serves_as_fallback(view),
        "switching": _switching(view, now) if shut else None,
        "failure": {k: failure[k] for k in ("reason", "category", "retry_at_ms")} if failure else None,
        "blocked": view.holders or "the GPU is held" if view.phase == "blocked" else None,
        "steps": steps,
    }


def timetable(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The steps as the gateways take them."""
    return [
        {
            "at": step.at,
            "target": _target(step.target),
            "why": step.why,
            "fallback": _target(step.fallback),
            "reservation_id": step.reservation_id,
            "prepares_for": step.prepares_for,
            "access": {
                "reservation_id": step.access.reservation_id,
                "kind": step.access.kind,
                "holder_id": step.access.holder_id,
                "participant_ids": sorted(step.access.participant_ids),
                "holder_name": step.access.holder_name,
                "start": step.access.start,
                "end": step.access.end,
            }
            if step.access
            else None,
        }
        for step in steps
    ]


def status(channel: str, view: ChannelView, detail: str, in_flight: int, now: Millis) -> dict[str, Any]:
    """The fields of ChannelStatus."""
    running, launch = view.process, view.starting
    loads = view.phase == "loading"
    choice = choose(view, now)
    return {
        "channel": channel,
        "phase": view.phase,
        "running": running.identity if running else launch.identity if launch else "",
        "running_model": running.model if running else launch.model if launch else "",
        "running_preset": running.preset if running else launch.preset if launch else None,
        "fallback": serves_as_fallback(view),
        "failure": shown_failure(view),
        "in_flight": in_flight,
        "load_started_at_ms": (running.started_at if running else view.phase_since) if loads else 0,
        "load_estimated_seconds": _load_seconds(view) if loads else 0.0,
        "phase_since_ms": view.phase_since,
        "detail": detail,
        "engine_pid": running.pid if running else 0,
        "launch_id": running.launch_id if running else "",
        "drain_deadline_ms": view.drain.deadline if view.drain else 0,
        "switching_to": choice.launch.identity if choice.launch and view.phase in SHUT else "",
    }


def shown_failure(view: ChannelView) -> dict[str, Any] | None:
    """The failure of what should run, until it is ready; somebody else's process on the GPU is one as well."""
    target = view.step.target if view.step else None
    if view.phase == "blocked" and view.process is None:
        return {
            "target": target.identity if target else "",
            "model": target.model if target else "",
            "preset": target.preset if target else None,
            "category": "gpu_busy",
            "reason": view.holders,
            "count": 1,
            "since_ms": view.blocked_since,
            "last_ms": view.blocked_since,
            "retry_at_ms": 0,
            "episode": f"blocked-{view.blocked_since}",
            "detail": "",
        }
    failure = waiting(view, target)
    return None if failure is None else failure_fields(failure, next_try(view, failure))


def failure_fields(failure: Failure, retry_at: Millis | None) -> dict[str, Any]:
    """The fields of the protocol's Failure; `retry_at_ms` 0 while the fallback is loading."""
    return {
        "target": failure.identity,
        "model": failure.model,
        "preset": failure.preset,
        "category": failure.category,
        "reason": failure.reason,
        "count": failure.count,
        "since_ms": failure.since,
        "last_ms": failure.last,
        "retry_at_ms": retry_at or 0,
        "episode": failure.episode,
        "detail": failure.detail,
    }


def load_result(
    channel: str, launch_id: str, target: Launch | Running, ok: bool, seconds: Seconds, now: Millis
) -> dict:
    """The fields of LoadResult; its id belongs to the start, so that a repetition changes nothing."""
    return {
        "id": f"{channel}:{launch_id or f'{target.identity[:16]}-{now}'}",
        "channel": channel,
        "identity": target.identity,
        "model": target.model,
        "preset": target.preset,
        "ok": ok,
        "seconds": round(seconds, 3),
        "at_ms": now,
        "gpu_memory_bytes": 0,
    }


def failure_event(channel: str, kind: str, failure: Failure, at: Millis) -> dict[str, Any]:
    """`failed` or `recovered`, once an episode: the id belongs to the episode."""
    what = failure.model if failure.preset is None else f"{failure.model}:{failure.preset}"
    text = f"{what} failed: {failure.reason}" if kind == "failed" else f"{what} runs again"
    return {
        "id": f"{channel}:{failure.episode}:{kind}",
        "kind": kind,
        "channel": channel,
        "failure": failure_fields(failure, None),
        "at_ms": at,
        "text": text,
        "reservation_id": failure.reservation_id,
    }


def blocked_event(channel: str, view: ChannelView) -> dict[str, Any]:
    """Nothing can be started, because of whom."""
    return {
        "id": f"{channel}:blocked-{view.blocked_since}:blocked",
        "kind": "blocked",
        "channel": channel,
        "failure": shown_failure(view),
        "at_ms": view.blocked_since,
        "text": view.holders,
        "reservation_id": view.step.reservation_id if view.step else "",
    }


def held_by(holders: Sequence[Holder]) -> str:
    """Who holds the GPU, in words."""
    if not holders:
        return ""
    names = [
        f"{h.command or 'a process'} (pid {h.pid}, user {h.user or 'unknown'}, {h.memory_bytes / 1e9:.1f} GB on {h.gpu})"
        for h in holders
    ]
    return f"the GPU is held by somebody else's process: {', '.join(names)}; the model starts as soon as it is gone"


def stuck_words(process: Process | None, left: Sequence[int]) -> str:
    """Our own engine that cannot be got rid of: the processes of it that are left."""
    model = process.model if process else "the engine"
    pids = f"pid {left[0]}" if len(left) == 1 else f"pids {', '.join(map(str, left))}"
    return (
        f"{model} ({pids}) is still there 30 s after SIGKILL, so nothing is started beside it; "
        "look at the process and the GPU driver on the node, a restart of the machine may be needed"
    )


def gpu_busy(holders: Sequence[Holder]) -> Trouble:
    """The failure that a look before a retry finds."""
    return Trouble("gpu_busy", held_by(holders))


def _serving(process: Process) -> dict[str, Any]:
    return {
        "identity": process.identity,
        "model": process.model,
        "preset": process.preset,
        "launch_id": process.launch_id,
        "socket": process.socket,
        "host": process.host,
        "port": process.port,
        "engine_key": process.engine_key,
        "served_name": process.served_name,
    }


def _loading(view: ChannelView) -> dict[str, Any] | None:
    what = view.process or view.starting
    if what is None:
        return None
    since = view.process.started_at if view.process else view.phase_since
    return {
        "identity": what.identity,
        "model": what.model,
        "preset": what.preset,
        "ready_at_ms": since + round(_load_seconds(view) * 1000),
    }


def _switching(view: ChannelView, now: Millis) -> dict[str, Any]:
    launch = choose(view, now).launch
    return {
        "identity": launch.identity if launch else "",
        "retry_drain": bool(view.drain and view.drain.retry),
        "ready_at_ms": ready_estimate(view, launch, now),
    }


def _load_seconds(view: ChannelView) -> Seconds:
    identity = view.process.identity if view.process else view.starting.identity if view.starting else ""
    for launch in (view.step.target if view.step else None, fallback_of(view), view.starting):
        if launch is not None and launch.identity == identity:
            return launch.load_seconds
    return view.process.load_seconds if view.process else 0.0


def _target(launch: Launch | None) -> dict[str, Any] | None:
    if launch is None:
        return None
    return {
        "identity": launch.identity,
        "model": launch.model,
        "preset": launch.preset,
        "load_seconds": round(launch.load_seconds, 3),
    }
