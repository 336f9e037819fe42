"""Clients that go on asking while something is done to the fleet, and remember what went wrong."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import httpx

from tests.hosts.fleet import TINY, Fleet
from tests.hosts.lab import Host


class Load:
    """Steady streams from a node, one after the other, and whatever goes wrong with them. `relayed`: of a model that
    another node serves."""

    def __init__(self, fleet: Fleet, host: Host, tokens: int, relayed: str = "") -> None:
        self.fleet, self.host, self.tokens, self.relayed = fleet, host, tokens, relayed
        self.streams, self.problems = 0, list[str]()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(120)

    def _run(self) -> None:
        body = {"model": self.relayed or "auto", "stream": True, "max_tokens": self.tokens, "ignore_eos": True,
                "messages": [{"role": "user", "content": "Count to a hundred."}]}  # fmt: skip
        url, trust = self.fleet.gateway(self.host)
        url += f"{'' if self.relayed else '/channels/main'}/v1/chat/completions"
        while not self._end.is_set():
            began = time.monotonic()
            try:
                with httpx.stream(
                    "POST", url, json=body, timeout=60, verify=trust,
                    headers={"Authorization": f"Bearer {self.fleet.key}"},
                ) as answer:  # fmt: skip
                    text = "".join(answer.iter_text())
                if answer.status_code != 200 or "data: [DONE]" not in text or '"error"' in text:
                    self.problems.append(f"{answer.status_code} {text[-300:]}")
            except httpx.HTTPError as err:
                self.problems.append(repr(err))
            self.streams += 1
            self._end.wait(max(1.0, 1.5 * (time.monotonic() - began)))  # the machine has more to do


@contextlib.contextmanager
def loaded(fleet: Fleet) -> Iterator[list[Load]]:
    """Short streams from every node all the time, from one of them long ones that span the gateways' change, and such as
    it passes on to the other."""
    first, second = fleet.nodes
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(each)
            for each in (
                Load(fleet, first, 4),
                Load(fleet, second, 4),
                Load(fleet, first, 300),
                Load(fleet, first, 4, TINY),
            )
        ]
