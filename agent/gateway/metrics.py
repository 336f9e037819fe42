"""The gateway's own figures in Prometheus' text format: requests by channel and outcome, in flight, time to first byte,
bytes, phases. Written by hand, for it is a handful of counters on the hottest path."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters since the process began. `in_flight` is the gateway's own count, `phases` the channels' as the agent
    said last; both are read when asked."""

    def __init__(self, in_flight: Mapping[str, int], phases: Callable[[], Mapping[str, str]] = dict) -> None:
        self._in_flight, self._phases = in_flight, phases
        self.of_agent = ""  # its figures, as text
        self._requests: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._bytes: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._first_byte: dict[str, list[int]] = {}
        self._first_byte_sum: defaultdict[str, float] = defaultdict(float)

    def count(self, channel: str, outcome: str, status: int, first_byte: float, bytes_in: int, bytes_out: int) -> None:
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

    def text(self) -> str:
        lines = [
            "# HELP slotserve_gateway_requests_total Requests answered, by channel, outcome and status.",
            "# TYPE slotserve_gateway_requests_total counter",
        ]
        for (channel, outcome, status), value in sorted(self._requests.items()):
            lines.append(
                f'slotserve_gateway_requests_total{{channel="{channel}",outcome="{outcome}",status="{status}"}} {value}'
            )
        lines += [
            "# HELP slotserve_gateway_in_flight Requests running now.",
            "# TYPE slotserve_gateway_in_flight gauge",
        ]
        lines += [f'slotserve_gateway_in_flight{{channel="{c}"}} {n}' for c, n in sorted(self._in_flight.items())]
        lines += [
            "# HELP slotserve_channel_phase 1 for the phase that each channel is in.",
            "# TYPE slotserve_channel_phase gauge",
        ]
        lines += [f'slotserve_channel_phase{{channel="{c}",phase="{p}"}} 1' for c, p in sorted(self._phases().items())]
        lines += [
            "# HELP slotserve_gateway_bytes_total Bytes of bodies.",
            "# TYPE slotserve_gateway_bytes_total counter",
        ]
        for (channel, way), value in sorted(self._bytes.items()):
            lines.append(f'slotserve_gateway_bytes_total{{channel="{channel}",direction="{way}"}} {value}')
        lines += [
            "# HELP slotserve_gateway_first_byte_seconds Time to the engine's first byte.",
            "# TYPE slotserve_gateway_first_byte_seconds histogram",
        ]
        for channel, buckets in sorted(self._first_byte.items()):
            total = 0
            for limit, value in zip((*map(str, BUCKETS), "+Inf"), buckets, strict=True):
                total += value
                lines.append(f'slotserve_gateway_first_byte_seconds_bucket{{channel="{channel}",le="{limit}"}} {total}')
            lines.append(
                f'slotserve_gateway_first_byte_seconds_sum{{channel="{channel}"}} {self._first_byte_sum[channel]:.6f}'
            )
            lines.append(f'slotserve_gateway_first_byte_seconds_count{{channel="{channel}"}} {total}')
        return "\n".join(lines) + "\n" + self.of_agent
