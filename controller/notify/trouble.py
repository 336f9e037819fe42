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


def summed(found: dict[str, Any]) -> list[tuple[str, str, int, str]]:
    """(way, target, messages, error) of each way that fails; mail fails as a whole, whoever it is for (target "")."""
    said: dict[tuple[str, str, str], int] = {}
    for problem in found["problems"]:
        place = (problem["way"], "" if problem["way"] == "email" else str(problem["to"]), problem["error"])
        said[place] = said.get(place, 0) + problem["messages"]
    return [(way, to, count, error) for (way, to, error), count in said.items()]
