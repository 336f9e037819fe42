"""What a channel's task keeps over a restart of the agent: its failures, since when what runs is ready, and since when a
foreign process holds its GPU."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from agent.core import retry
from agent.core.types import Millis
from agent.core.view import ChannelView

log = logging.getLogger(__name__)


class Kept:
    """`load` and `save` are the state folder's; neither a broken record nor a full disk keeps a channel from going on."""

    def __init__(
        self, channel: str, load: Callable[[], dict[str, Any] | None], save: Callable[[dict[str, Any]], None]
    ) -> None:
        self._channel, self._load, self._save = channel, load, save
        self._saved: tuple[Mapping[str, retry.Failure], dict[str, Millis], Millis] | None = None

    def load(self) -> tuple[dict[str, retry.Failure], dict[str, Millis], Millis]:
        """(failures by identity, launch id -> ready since, blocked since or 0)."""
        try:
            saved = self._load() or {}
            ready = {str(k): int(v) for k, v in saved.get("ready", {}).items()}
            return retry.from_json(saved.get("failures", [])), ready, int(saved.get("blocked_since", 0))
        except (ValueError, TypeError, AttributeError, OSError) as err:
            log.warning("failure records unreadable, counting anew channel=%s error=%s", self._channel, err)
            return {}, {}, 0

    def save(self, view: ChannelView) -> None:
        """Where something of it has changed."""
        process, failures, blocked = view.process, view.failures, view.blocked_since
        ready = {process.launch_id: process.ready_at} if process and process.ready_at is not None else {}
        if self._saved is not None and self._saved[0] is failures and self._saved[1:] == (ready, blocked):
            return
        self._saved = failures, ready, blocked
        try:
            self._save({"failures": retry.to_json(failures), "ready": ready, "blocked_since": blocked})
        except OSError as err:  # counted on in memory; written with the next change
            log.error("failure records not saved channel=%s error=%r", self._channel, str(err))
