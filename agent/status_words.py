"""What `slotserve-agent status` says of a node, for people: a line each, trouble as notes with what to do. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from protos.shared import clocks

LEAST_FREE_BYTES = 1_000_000_000
NOTED_DAYS = 7


def text(said: Mapping[str, Any]) -> str:
    """`said`: the agent's status, or its last one with `running` false; with `enrolled` and `notes` beside it."""
    return "\n".join([*_head(said), *(f"  note: {note}" for note in said.get("notes", [])), *_channels(said)])


def disk(free: int, where: str) -> list[str]:
    """Notes on the room that is left."""
    if free >= LEAST_FREE_BYTES:
        return []
    return [f"{free / 1e9:.1f} GB are free where {where} is: plans, reports and engines' logs need room"]


def certificate(until: str, now: datetime) -> list[str]:
    """Notes on when it runs out (RFC 3339)."""
    days = (datetime.fromisoformat(until) - now.astimezone(UTC)).total_seconds() / 86400
    if days <= 0:
        return ["the certificate has run out: it is replaced by itself when the controller is reached (30 days)"]
    if days < NOTED_DAYS:
        return [f"the certificate ends in {days:.0f} days; it is renewed as soon as the controller is reached"]
    return []


def clock(said: Mapping[str, Any]) -> list[str]:
    """Notes on this machine's clock, from the running agent's status."""
    skew, limit = said.get("clock_skew_seconds"), said.get("clock_skew_limit_seconds")
    if not said.get("running") or skew is None or limit is None or not clocks.shown(skew):
        return []
    way = "fast" if skew > 0 else "slow"
    if abs(skew) <= limit:
        return [
            f"this machine's clock is {abs(skew):.1f} s {way} (limit {limit:g} s); switching follows the controller's"
        ]
    return [
        f"this machine's clock is {abs(skew):.0f} s {way}, more than {limit:g} s: its certificate and its logs depend on it "
        "(switching follows the controller's); start NTP"
    ]


def _head(said: Mapping[str, Any]) -> list[str]:
    lines = []
    if not said["running"]:
        seen = f"; last seen {_time(said['at_ms'])}" if "at_ms" in said else ""
        lines.append(f"No agent runs with this folder{seen}.")
    if "node" in said:
        plan = said.get("plan")
        held = f"plan {plan['epoch']}.{plan['generation']}" if plan else "no plan yet"
        where = "connected" if said.get("connected") and said["running"] else "not connected"
        lines.append(f"{said['node']}: {where}, {held}, {said.get('unsent', 0)} reports to send")
    if enrolled := said["enrolled"]:
        lines.append(f"  controller {enrolled['fleet_address']}, certificate until {enrolled['certificate_until']}")
    else:
        lines.append("  not enrolled; `slotserve node add NAME` makes a join string for `slotserve-agent enrol`")
    if said["running"] and said.get("trouble"):
        lines.append(f"  no connection: {said['trouble']}")
    if said["running"] and not said.get("clock_measured", True):
        lines.append("  the controller's time is not known yet; this machine's own counts until then")
    return lines


def _channels(said: Mapping[str, Any]) -> list[str]:
    lines = []
    for channel in said.get("channels", []):
        model = channel.get("running_model") or "nothing"
        lines.append(f"  {channel['channel']}: {channel['phase']}, {model}: {channel.get('detail', '')}")
        if failure := channel.get("failure"):
            lines.append(f"    {failure['model']} failed ({failure['category']}): {failure['reason']}")
        if kept := said.get("cache_bytes", {}).get(channel["channel"]):
            lines.append(f"    {kept / 1e9:.1f} GB of what its engines have compiled are kept")
    return lines


def _time(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))
