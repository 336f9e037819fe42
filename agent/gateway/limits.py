"""How many requests may run at once on a channel, with one key and of all callers together, and who gets a free place.

Nobody is queued: who finds no place gets 429 and Retry-After. So that nobody takes every place that becomes free, whoever
was refused a place is remembered for a while as waiting, and a person who has the fair share of the places (all of
them, divided by the people who have requests running or are waiting) gets no further one while somebody waits who has
less. Under a reservation only those who may use it count: what still runs of others takes no place of theirs.

Counts are exact within this process. What runs in other gateway processes (more than one worker, or one that is being
replaced) the agent says, a few hundredths of a second late; while the agent is away each process takes its part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from agent.core.admission import Caller, may_use
from agent.core.types import Access, Seconds
from agent.gateway.errors import Refusal
from agent.gateway.keys import Key

CODE = "too_many_requests"
LONGEST_WAIT: Seconds = 60
WAITS_BEYOND: Seconds = 5.0  # how much later than its Retry-After somebody may come back and is still waiting
Who = tuple[str, str]  # user, key


class Limits:
    """`refusal` before a request is let in, `begun` and `ended` around it."""

    def __init__(self) -> None:
        self._set: dict[str, tuple[int, int]] = {}
        self._mine: dict[str, dict[Who, int]] = {}
        self._others: dict[str, dict[Who, int]] = {}
        self._waiting: dict[str, dict[Who, Seconds]] = {}
        self._seconds: dict[str, Seconds] = {}  # how long a request takes, of late
        self._parts = 1
        self._others_known = True

    def limit(self, limits: Mapping[str, Any], running: Mapping[str, Iterable[Key]] = MappingProxyType({})) -> None:
        """{channel: (requests of all together, requests with one key)}, 0 = no limit. `running`: whose requests run; of
        channels without a limit they are not counted."""
        before, self._set = self._set, {str(c): (int(both[0]), int(both[1])) for c, both in limits.items() if any(both)}
        self._mine = {c: self._mine.get(c, {}) for c in self._set}
        for channel in self._set.keys() - before.keys():
            for key in running.get(channel, ()):
                self.begun(channel, key)
        self._waiting = {c: w for c, w in self._waiting.items() if c in self._set}

    @property
    def in_force(self) -> bool:
        return bool(self._set)

    def limited(self, channel: str) -> bool:
        return channel in self._set

    def begun(self, channel: str, key: Key) -> None:
        mine = self._mine.get(channel)
        if mine is None:
            return
        who = (key.caller.user_id, key.id)
        mine[who] = mine.get(who, 0) + 1
        if channel in self._waiting:
            self._waiting[channel].pop(who, None)

    def ended(self, channel: str, key: Key, seconds: Seconds) -> None:
        mine = self._mine.get(channel)
        if mine is None:
            return
        who = (key.caller.user_id, key.id)
        if mine.get(who, 0) > 1:
            mine[who] -= 1
        else:
            mine.pop(who, None)
        self._seconds[channel] = 0.8 * self._seconds.get(channel, seconds) + 0.2 * seconds

    def refusal(self, channel: str, key: Key, reserved: Access | None, now: Seconds) -> Refusal | None:
        """Why a request may not begin now (`now`: of the loop's clock); None: it may. `reserved`: for whom the channel is."""
        limits = self._set.get(channel)
        if limits is None:
            return None
        most, most_with_key = (self._part(x) for x in limits)
        running = self._running(channel)
        who = (key.caller.user_id, key.id)
        if most_with_key and running.get(who, 0) >= most_with_key:
            return self._refuse(
                channel,
                most_with_key,
                f"{_requests(running[who])} with this key on channel {channel}, and no more are allowed at once.",
            )
        if not most:
            return None
        people: dict[str, int] = {}
        for (user, _), number in running.items():
            if number and (reserved is None or may_use(reserved, Caller(user))):
                people[user] = people.get(user, 0) + number
        waiting = self._people_waiting(channel, now) - {key.caller.user_id}
        mine = people.get(key.caller.user_id, 0)
        if sum(people.values()) < most:
            share = max(1, most // len(people.keys() | waiting | {key.caller.user_id}))
            if mine < share or all(people.get(user, 0) >= share for user in waiting):
                return None
            words = f"{mine} of the {most} places of channel {channel} are yours, and others wait for one."
        else:
            words = f"Channel {channel} runs {most} requests at once, and all places are taken."
        refused = self._refuse(channel, most / (len(waiting) + 1), words)
        until = now + (refused.retry_after or 1) + WAITS_BEYOND
        self._waiting.setdefault(channel, {})[who] = until
        return refused

    # other processes

    def report(self, now: Seconds) -> dict[str, list[tuple[str, str, int]]]:
        """What the agent is told: who runs how many on limited channels; 0 = waits for a place."""
        said = {}
        for channel in self._set:
            waiting = {who: 0 for who, until in self._waiting.get(channel, {}).items() if until > now}
            if rows := {**waiting, **self._mine.get(channel, {})}:
                said[channel] = [(user, key, number) for (user, key), number in rows.items()]
        return said

    def others(self, callers: Mapping[str, Any], processes: int) -> None:
        """The same of the other processes together, and how many there are with this one."""
        self._others = {str(c): {(str(u), str(k)): int(n) for u, k, n in rows} for c, rows in callers.items()}
        self._parts, self._others_known = max(1, processes), True

    def alone(self) -> None:
        """The agent is away: nobody says what runs elsewhere."""
        self._others, self._others_known = {}, False

    # below: how it is done

    def _part(self, limit: int) -> int:
        return limit if self._others_known else math.ceil(limit / self._parts)

    def _running(self, channel: str) -> dict[Who, int]:
        mine, others = self._mine.get(channel) or {}, self._others.get(channel)
        if not others:
            return mine
        return {who: mine.get(who, 0) + others.get(who, 0) for who in mine.keys() | others.keys()}

    def _people_waiting(self, channel: str, now: Seconds) -> set[str]:
        waiting = self._waiting.get(channel, {})
        for who in [w for w, until in waiting.items() if until <= now]:
            del waiting[who]
        elsewhere = {user for (user, _), number in self._others.get(channel, {}).items() if not number}
        return {user for user, _ in waiting} | elsewhere

    def _refuse(self, channel: str, places: float, words: str) -> Refusal:
        after = math.ceil(self._seconds.get(channel, 1.0) / places)
        return Refusal(429, CODE, f"{words} Try again shortly.", retry_after=max(1, min(int(LONGEST_WAIT), after)))


def _requests(number: int) -> str:
    return "1 request runs" if number == 1 else f"{number} requests run"
