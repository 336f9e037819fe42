"""The simulated engine's state, its slots, and the words it makes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from agent.simulated.arguments import Values
from agent.simulated.console import log

WORDS = ("the", "channel", "answers", "in", "order", "and", "the", "next", "slot", "is", "ready", "on", "time")


class Engine:
    """What the connections share: the names, the key, the slots."""

    def __init__(self, given: Values, settings: Values) -> None:
        self.given = given
        self.settings = settings
        self.loaded = False
        self.ready_at = 0.0
        self.model = given.get("-m", "")
        # Kept sorted, the first is the id: so does llama-server.
        aliases = sorted({a.strip() for a in given.get("-a", "").split(",")} - {""}, key=str.encode)
        self.aliases = aliases or ([os.path.basename(self.model)] if self.model else [])
        if "wrong-name" in settings:
            self.aliases = [settings["wrong-name"]]
        keys = f"{os.environ.get('LLAMA_API_KEY', '')},{given.get('--api-key', '')}"
        self.keys = {key.strip() for key in keys.split(",")} - {""}
        slots = int(given.get("-np", -1))
        self.busy = [False] * (slots if slots > 0 else 4)
        self.waiting = 0
        self.free = threading.Condition()
        self.requests = 0
        self.tokens = 0
        self.address = ""

    def become_ready(self) -> None:
        self.ready_at, self.loaded = time.monotonic(), True

    def due(self, setting: str) -> bool:
        """Whether the time of `…-after S` has come."""
        return setting in self.settings and time.monotonic() >= self.ready_at + float(self.settings[setting])

    def name(self) -> str:
        return self.aliases[0] if self.aliases else ""

    def failing(self) -> int:
        """The status with which this request is to fail, or 0: spread evenly, the same in every run."""
        rate = float(self.settings.get("error-rate", 1.0 if "status" in self.settings else 0.0))
        with self.free:
            self.requests += 1
            fails = int(self.requests * rate + 1e-9) > int((self.requests - 1) * rate + 1e-9)
        return int(self.settings.get("status", 500)) if fails else 0


class Gone(Exception):
    """The client has closed the connection."""


class Slot:
    """A slot of the engine for the time of one answer. Waiting for one, too, the client is watched."""

    def __init__(self, engine: Engine, watch: Callable[[float], None], prompt: str) -> None:
        self.engine = engine
        self.watch = watch  # waits, and raises Gone when the client leaves
        self.prompt_tokens = max(1, len(prompt.split()))
        self.made = 0
        self.end = "stop"
        self.number = -1

    def __enter__(self) -> Slot:
        with self.engine.free:
            self.engine.waiting += 1
        try:
            while not self._take():
                self.watch(0.02)
        except (Gone, OSError):
            log("srv  request cancelled while it waited for a slot")
            raise
        finally:
            with self.engine.free:
                self.engine.waiting -= 1
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self.engine.free:
            self.engine.busy[self.number] = False
            self.engine.tokens += self.made
        if kind is not None:
            log(f"slot  id {self.number} | request cancelled after {self.made} tokens")

    def generate(self, limit: Any) -> Iterator[str]:
        """The answer's tokens at their pace. The same request gets the same words: the model's name, then some text."""
        settings = self.engine.settings
        if "hang" in settings or self.engine.due("hang-after") or self.engine.due("cuda-error-after"):
            self.watch(10**8)
        longest = int(settings.get("tokens", 32))
        count = min(longest, limit) if isinstance(limit, int) and limit >= 0 else longest
        self.end = "length" if count < longest else "stop"
        pace = float(settings.get("token-ms", 0)) / 1000
        self.watch(float(settings.get("first-token-ms", 0)) / 1000)
        for i in range(count):
            if i:
                self.watch(pace)
            self.made += 1
            yield f"{self.engine.name()}:" if i == 0 else f" {WORDS[(i - 1) % len(WORDS)]}"

    def usage(self) -> dict[str, int]:
        total = self.prompt_tokens + self.made
        return {"completion_tokens": self.made, "prompt_tokens": self.prompt_tokens, "total_tokens": total}

    def usage_of_messages(self) -> dict[str, int]:
        return {"input_tokens": self.prompt_tokens, "output_tokens": self.made}

    def stop_reason(self) -> str:
        return "max_tokens" if self.end == "length" else "end_turn"

    def _take(self) -> bool:
        with self.engine.free:
            for i, busy in enumerate(self.engine.busy):
                if not busy:
                    self.engine.busy[i] = True
                    self.number = i
                    return True
        return False
