"""The gateway's own figures in Prometheus' text format: requests by channel and outcome, in flight, time to first byte,
bytes, tokens, phases. Written by hand, for it is a handful of counters on the hottest path.

With several worker processes each keeps its own, and whoever is asked adds up what all have on the board (board.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent.gateway.tokens import Tokens

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters since the process began. `in_flight` is the gateways' count, `phases` the channels' as the agent said
    last; both are asked when they are needed."""

    def __init__(
        self,
        in_flight: Callable[[], Mapping[str, int]] = dict,
        phases: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._in_flight, self._phases = in_flight, phases
        self.of_agent = ""  # its figures, as text
        self._requests: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._bytes: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._tokens: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._first_byte: dict[str, list[int]] = {}
        self._first_byte_sum: defaultdict[str, float] = defaultdict(float)

    def count(
        self,
        channel: str,
        outcome: str,
        status: int,
        first_byte: float,
        bytes_in: int,
        bytes_out: int,
    ) -> None:
        self._requests[channel, outcome, status] += 1
        if bytes_in:
            self._bytes[channel, "in"] += bytes_in
        if bytes_out:
            self._bytes[channel, "out"] += bytes_out
        if first_byte:
            buckets = self._first_byte.get(channel)
            if buckets is None:
                buckets = self._first_byte[channel] = [0] * (len(BUCKETS) + 1)
            buckets[bisect_left(BUCKETS, first_byte)] += 1
            self._first_byte_sum[channel] += first_byte

    def tokens(self, channel: str, tokens: Tokens) -> None:
        for kind, number in zip(("prompt", "completion"), tokens, strict=True):
            if number:
                self._tokens[channel, kind] += number

    # several processes

    def dump(self) -> dict[str, Any]:
        """The counters, for `add`; JSON."""
        return {
            "requests": [(*k, n) for k, n in self._requests.items()],
            "bytes": [(*k, n) for k, n in self._bytes.items()],
            "tokens": [(*k, n) for k, n in self._tokens.items()],
            "first_byte": [(c, b, self._first_byte_sum[c]) for c, b in self._first_byte.items()],
        }

    def add(self, dumped: Mapping[str, Any]) -> None:
        """Counts another process's, or one's own predecessor's, as well."""
        for channel, outcome, status, number in dumped.get("requests", ()):
            self._requests[channel, outcome, status] += number
        for counter, name in ((self._bytes, "bytes"), (self._tokens, "tokens")):
            for channel, way, number in dumped.get(name, ()):
                counter[channel, way] += number
        for channel, buckets, seconds in dumped.get("first_byte", ()):
            mine = self._first_byte.setdefault(channel, [0] * (len(BUCKETS) + 1))
            self._first_byte[channel] = [a + b for a, b in zip(mine, buckets, strict=True)]
            self._first_byte_sum[channel] += seconds

    def text(self, others: Iterable[Mapping[str, Any]] = ()) -> str:
        """`others`: what the other workers have dumped."""
        whole = Metrics(self._in_flight, self._phases)
        for dumped in (self.dump(), *others):
            whole.add(dumped)
        return "\n".join(whole._lines()) + "\n" + self.of_agent

    def _lines(self) -> list[str]:
        lines = _family("requests_total", "counter", "Requests answered, by channel, outcome and status.")
        for (channel, outcome, status), value in sorted(self._requests.items()):
            lines.append(
                f'slotserve_gateway_requests_total{{channel="{channel}",outcome="{outcome}",status="{status}"}} {value}'
            )
        lines += _family("in_flight", "gauge", "Requests running now, in every gateway process of the node.")
        lines += [f'slotserve_gateway_in_flight{{channel="{c}"}} {n}' for c, n in sorted(self._in_flight().items())]
        lines += [
            "# HELP slotserve_channel_phase 1 for the phase that each channel is in.",
            "# TYPE slotserve_channel_phase gauge",
        ]
        lines += [f'slotserve_channel_phase{{channel="{c}",phase="{p}"}} 1' for c, p in sorted(self._phases().items())]
        lines += _family("bytes_total", "counter", "Bytes of bodies.")
        for (channel, way), value in sorted(self._bytes.items()):
            lines.append(f'slotserve_gateway_bytes_total{{channel="{channel}",direction="{way}"}} {value}')
        lines += _family("tokens_total", "counter", "Tokens, as far as the engines report them.")
        for (channel, kind), value in sorted(self._tokens.items()):
            lines.append(f'slotserve_gateway_tokens_total{{channel="{channel}",kind="{kind}"}} {value}')
        lines += _family("first_byte_seconds", "histogram", "Time to the engine's first byte.")
        for channel, buckets in sorted(self._first_byte.items()):
            total = 0
            for limit, value in zip((*map(str, BUCKETS), "+Inf"), buckets, strict=True):
                total += value
                lines.append(f'slotserve_gateway_first_byte_seconds_bucket{{channel="{channel}",le="{limit}"}} {total}')
            lines.append(
                f'slotserve_gateway_first_byte_seconds_sum{{channel="{channel}"}} {self._first_byte_sum[channel]:.6f}'
            )
            lines.append(f'slotserve_gateway_first_byte_seconds_count{{channel="{channel}"}} {total}')
        return lines


def _family(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP slotserve_gateway_{name} {words}", f"# TYPE slotserve_gateway_{name} {kind}"]
