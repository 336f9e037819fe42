"""The agent's figures: each start and each failure counts once, however often it is reported."""

from __future__ import annotations

from typing import Any

from agent.figures import Figures
from agent.runtime.gpu import Gpu


def status(launch: str, failed_at: int = 0, category: str = "crashed") -> dict[str, Any]:
    failure = {"last_ms": failed_at, "category": category} if failed_at else None
    return {"channel": "main", "launch_id": launch, "failure": failure}


def test_counts_from_reports() -> None:
    figures = Figures()
    for report in (
        status(""),
        status("l1"),
        status("l1"),
        status("", 100),
        status("l2", 100),
        status("l2", 200, "out_of_memory"),
        status("l2"),
    ):
        figures.status(report)
    figures.load_result({"channel": "main", "ok": True, "seconds": 1.5})
    figures.load_result({"channel": "main", "ok": False, "seconds": 9.0})
    figures.load_result({"channel": "main", "ok": True, "seconds": 2.0})
    lines = figures.text([Gpu(0, "GPU-1", "H200", 100, 40, 25)]).splitlines()
    assert 'slotserve_engine_starts_total{channel="main"} 2' in lines
    assert 'slotserve_engine_failures_total{channel="main",category="crashed"} 1' in lines
    assert 'slotserve_engine_failures_total{channel="main",category="out_of_memory"} 1' in lines
    assert 'slotserve_load_seconds_sum{channel="main"} 3.5' in lines
    assert 'slotserve_load_seconds_count{channel="main"} 2' in lines
    assert 'slotserve_gpu_memory_used_bytes{gpu="GPU-1",index="0"} 40' in lines
    assert 'slotserve_gpu_use_ratio{gpu="GPU-1",index="0"} 0.25' in lines


def test_the_text_is_what_prometheus_reads() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    figures = Figures()
    figures.status(status("l1", 5))
    figures.load_result({"channel": "main", "ok": True, "seconds": 1.5})
    text = figures.text([Gpu(0, "GPU-1", "H200", 100, 40, 25)])
    assert len(list(text_string_to_metric_families(text))) == 6
