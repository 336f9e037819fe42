"""An event loop whose time is a number: it jumps to the next timer as soon as nothing else is to be done."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("everything waits for something that will never come")
        self.loop.virtual += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its `time()` starts at 0 and moves only by waiting."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.virtual = 0.0
        super().__init__(selector)

    def time(self) -> float:
        return self.virtual

    def now_ms(self) -> int:
        return round(self.virtual * 1000)


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in no time at all."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def now_ms() -> int:
    """The running loop's time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.now_ms()
