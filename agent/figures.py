"""What an agent knows in figures, in Prometheus' text format: the gateway puts it behind its own at /metrics.

Counted from what the channels' tasks report anyway; counters begin anew with the process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from agent.runtime.gpu import Gpu


class Figures:
    """`status` and `load_result` take the reports' fields; `text` is what there is to say."""

    def __init__(self) -> None:
        self._launch: dict[str, str] = {}
        self._failed_at: dict[str, int] = {}
        self._starts: defaultdict[str, int] = defaultdict(int)
        self._failures: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._loads: defaultdict[str, int] = defaultdict(int)
        self._load_seconds: defaultdict[str, float] = defaultdict(float)

    def status(self, fields: Mapping[str, Any]) -> None:
        """A channel's status has changed: another launch, another failure?"""
        channel, launch, failure = fields["channel"], fields["launch_id"], fields["failure"]
        if launch and launch != self._launch.get(channel):
            self._launch[channel] = launch
            self._starts[channel] += 1
        if failure is not None and failure["last_ms"] > self._failed_at.get(channel, 0):
            self._failed_at[channel] = failure["last_ms"]
            self._failures[channel, failure["category"]] += 1

    def load_result(self, fields: Mapping[str, Any]) -> None:
        if fields["ok"]:
            self._loads[fields["channel"]] += 1
            self._load_seconds[fields["channel"]] += fields["seconds"]

    def text(self, gpus: Iterable[Gpu]) -> str:
        """Whole families, each with its help and type."""
        gpus = tuple(gpus)
        lines = [
            *_family("slotserve_engine_starts_total", "counter", "Engines started or taken over, by channel."),
            *(_line("slotserve_engine_starts_total", n, channel=c) for c, n in sorted(self._starts.items())),
            *_family("slotserve_engine_failures_total", "counter", "Engines that failed, by channel and kind."),
            *(
                _line("slotserve_engine_failures_total", n, channel=c, category=kind)
                for (c, kind), n in sorted(self._failures.items())
            ),
            *_family("slotserve_load_seconds", "summary", "From an engine's start to ready."),
        ]
        for channel, number in sorted(self._loads.items()):
            lines.append(_line("slotserve_load_seconds_sum", round(self._load_seconds[channel], 3), channel=channel))
            lines.append(_line("slotserve_load_seconds_count", number, channel=channel))
        for name, words, values in (
            ("slotserve_gpu_memory_bytes", "Memory of a GPU.", [(g, g.memory_total_bytes) for g in gpus]),
            ("slotserve_gpu_memory_used_bytes", "Memory in use.", [(g, g.memory_used_bytes) for g in gpus]),
            (
                "slotserve_gpu_use_ratio",
                "How busy a GPU is.",
                [(g, u / 100) for g in gpus if (u := g.utilisation_percent) is not None],
            ),
        ):
            lines += _family(name, "gauge", words)
            lines += [_line(name, value, gpu=g.uuid, index=str(g.index)) for g, value in values]
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]


def _line(name: str, value: float, **labels: str) -> str:
    said = ",".join(f'{k}="{v}"' for k, v in labels.items())
    return f"{name}{{{said}}} {value}"
