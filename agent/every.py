"""A look at something, again and again, whatever one of the looks comes upon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from agent.core.types import Seconds

log = logging.getLogger(__name__)


async def every(pause: Seconds, look: Callable[[], Awaitable[None]], trouble: str, *about: object) -> None:
    """Until cancelled. `trouble`: the log's line where a look fails, with `about` in it."""
    while True:
        await asyncio.sleep(pause)
        try:
            await look()
        except Exception:  # whatever it is: it is said, and the next look comes all the same
            log.exception(trouble, *about)
