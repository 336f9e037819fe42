"""Where messages do not get through: for administrators, `slotserve doctor`, /readyz and the metrics."""

from __future__ import annotations

from typing import Any

from controller.context import Context
from controller.store import outbox, users
from controller.store.tables import NotificationTarget
from controller.times import text_of

RECENT_MS = 86_400_000  # a message that was given up is worth mentioning for so long


def state(ctx: Context, now: int) -> dict[str, Any]:
    """{waiting, failed, oldest_waiting_seconds, problems: [{way, to, error, since, messages, given_up}]}."""
    with ctx.store.read() as session:
        counts, oldest = outbox.counts(session), outbox.oldest_waiting(session)
        rows = outbox.troubled(session, now - RECENT_MS)
        people = users.names(session, [r[1] for r in rows if r[0] == "email"])
        places = {r[1]: session.get(NotificationTarget, r[1]) for r in rows if r[0] != "email"}
    problems = []
    for way, address, error, since, count, worst in rows:
        target = places.get(address)
        problems.append(
            {
                "way": way,
                "to": people.get(address) if way == "email" else target.name if target else None,
                "error": error,
                "since": text_of(since),
                "messages": count,
                "given_up": worst == "failed" or None,
            }
        )
    return {
        **counts,
        "oldest_waiting_seconds": None if oldest is None else max(0, now - oldest) / 1000,
        "problems": problems,
    }


def sentences(found: dict[str, Any]) -> list[str]:
    """A line for each way that fails, whoever it is for."""
    said: dict[tuple[str, str], int] = {}
    for problem in found["problems"]:
        place = (problem["way"], problem["error"]) if problem["way"] == "email" else (
            f"{problem['way']} {problem['to']}", problem["error"],
        )  # fmt: skip
        said[place] = said.get(place, 0) + problem["messages"]
    return [f"messages by {way} do not get through ({count} of them): {error}" for (way, error), count in said.items()]
