"""How a channel's task waits: its inbox, its clock, and the jobs (one of a kind) that run beside it and report back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from agent.core.types import Millis

T = TypeVar("T")
Message = Callable[[Millis], None]


class Timer(Protocol):
    """Waits in node time. May return early: whoever waits looks again."""

    async def sleep_until(self, at: Millis) -> None: ...


class LoopTimer:
    """The event loop's timer, against a clock that may be corrected meanwhile: it never sleeps over a second at once."""

    def __init__(self, now: Callable[[], Millis]) -> None:
        self._now = now

    async def sleep_until(self, at: Millis) -> None:
        await asyncio.sleep(min(max(at - self._now(), 1) / 1000, 1.0))


class Inbox:
    """Messages to the owner task: each is a function that the task calls with the time, in order."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._woken = asyncio.Event()

    def post(self, message: Message) -> None:
        """Never waits; of the loop's own thread only."""
        self._messages.append(message)
        self._woken.set()

    def take(self) -> Message | None:
        """The next message, if there is one."""
        if self._messages:
            return self._messages.popleft()
        self._woken.clear()
        return None

    async def wait(self, timer: Timer, until: Millis | None) -> None:
        """Until there is a message, or `until` has come."""
        if self._messages:
            return
        waits = [asyncio.ensure_future(self._woken.wait())]
        if until is not None:
            waits.append(asyncio.ensure_future(timer.sleep_until(until)))  # type: ignore[arg-type]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()


class Jobs:
    """At most one job of a kind. What a job answers is posted to the inbox; of one that was dropped nothing is."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._dropped: set[asyncio.Task[Any]] = set()

    @property
    def busy(self) -> frozenset[str]:
        return frozenset(self._running)

    def start(
        self,
        kind: str,
        job: Coroutine[Any, Any, T],
        done: Callable[[T, Millis], None],
        error: Callable[[Exception, Millis], None],
    ) -> None:
        """Runs `job`; afterwards the owner task calls `done` with its answer, or `error`."""
        self.drop(kind)
        task = asyncio.ensure_future(job)
        self._running[kind] = task
        task.add_done_callback(lambda t: self._inbox.post(lambda now: self._report(kind, t, done, error, now)))

    def drop(self, kind: str) -> None:
        """Cancels a job and forgets what it would have said."""
        task = self._running.pop(kind, None)
        if task is not None:
            task.cancel()
            self._dropped.add(task)
            task.add_done_callback(self._dropped.discard)

    async def close(self) -> None:
        """Cancels all and waits for them."""
        tasks = [*self._running.values(), *self._dropped]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _report(
        self,
        kind: str,
        task: asyncio.Task[T],
        done: Callable[[T, Millis], None],
        error: Callable[[Exception, Millis], None],
        now: Millis,
    ) -> None:
        if self._running.get(kind) is not task:
            return  # dropped meanwhile
        del self._running[kind]
        if task.cancelled():
            error(RuntimeError("cancelled"), now)
            return
        failed = task.exception()
        if failed is None:
            done(task.result(), now)
        elif isinstance(failed, Exception):
            error(failed, now)
        else:
            raise failed
