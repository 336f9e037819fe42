"""The samples of the small GPU charts: at most one in five seconds, the newest only, unknown ones left out."""

from __future__ import annotations

from dataclasses import replace

from controller.fleet.gpu_history import GpuHistory
from controller.fleet.live import Live, LiveGpu

GPU = LiveGpu(0, "GPU-1", "H100", 100, 50, 7)


def test_samples_are_thinned_and_the_oldest_go() -> None:
    now = [0.0]
    history = GpuHistory(every=5, kept=3, clock=lambda: now[0])
    for at, used in ((0, 10), (4.9, 99), (5, 20), (10, 30), (15, 250)):
        now[0] = at
        history.note([replace(GPU, memory_used_bytes=used)])
    assert history.memory("GPU-1") == [20, 30, 100]
    assert history.use("GPU-1") == [7, 7, 7]
    assert history.memory("nobody") == []


def test_what_is_unknown_is_no_zero() -> None:
    history = GpuHistory(every=0)
    history.note([replace(GPU, memory_total_bytes=0, utilisation_percent=None), GPU])
    assert (history.memory("GPU-1"), history.use("GPU-1")) == ([50], [7])


def test_reports_that_say_nothing_new_count_as_samples() -> None:
    live = Live()
    live.gpu_history = GpuHistory(every=0)
    for _ in range(3):
        live.update("n1", gpus=(GPU,))
    assert len(live.gpu_history.use("GPU-1")) == 3
