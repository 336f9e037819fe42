"""Worker threads for work that must not stand in the queue of the fleet's store: when a thousand agents dial at once,
some thousand reads and writes wait there, and whoever leads would lose the lease behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """`count` of them, begun when they are needed; a call that hangs keeps one, not the others."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, name)

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """What `work(*args)` returns or raises. Cancelling ends the waiting, not the work."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)
