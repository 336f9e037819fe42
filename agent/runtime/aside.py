"""Questions that may never be answered (a network disk that is gone, a driver that hangs), asked beside the event loop.

Each kind has one daemon thread at a time: whoever hangs keeps no other kind waiting, uses up no pool of threads that
the plan or the spool needs, and does not keep the process from ending. The asker bounds its waiting by a time-out; the
next question of the kind waits until the last one has come back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Aside:
    """One kind of question: `await aside(function, *args)`. Of one event loop at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last: asyncio.Future[Any] | None = None

    async def __call__(self, question: Callable[..., T], *args: Any) -> T:
        """What `question(*args)` returns or raises. Cancelled: its thread goes on by itself."""
        while self._last is not None and not self._last.done():
            await asyncio.wait([self._last])
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        answer.add_done_callback(lambda f: f.cancelled() or f.exception())  # perhaps nobody waits for it any more
        self._last = answer

        def ask() -> None:
            said: T | None = None
            failed: BaseException | None = None
            try:
                said = question(*args)
            except BaseException as err:  # noqa: BLE001  it is raised where it was asked
                failed = err
            try:
                loop.call_soon_threadsafe(_set, answer, said, failed)
            except RuntimeError:
                return  # the loop has ended meanwhile

        threading.Thread(target=ask, name=self._name, daemon=True).start()
        return await asyncio.shield(answer)


def _set(answer: asyncio.Future[Any], said: Any, failed: BaseException | None) -> None:
    if answer.done():
        return
    if failed is None:
        answer.set_result(said)
    else:
        answer.set_exception(failed)
