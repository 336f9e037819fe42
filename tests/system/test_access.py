"""Who may call, in every state a channel can be in: holder, participant, stranger, administrator and nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from tests.system.cluster import Cluster
from tests.system.conftest import sim_model

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]
SERVED = (200, None)
RESERVED = (403, "gpu_reserved")
NOBODY = (401, "invalid_api_key")


def seen(c: Cluster, model: str = "auto") -> dict[str, tuple[int, str | None]]:
    """(status, code) for each kind of caller; they ask at the same time, for a phase may be short."""
    callers = ("maya", "noor", "tomas", "root", "nobody")
    with ThreadPoolExecutor(len(callers)) as together:
        answers = dict(zip(callers, together.map(lambda who: c.chat(who, model), callers), strict=True))
    for who, answer in answers.items():
        if answer.status_code >= 400:
            error = answer.json()["error"]
            assert set(error) >= {"message", "type", "param", "code"}, f"{who}: not an OpenAI error: {error}"
            assert error["message"], who
    return {
        who: (a.status_code, None if a.status_code == 200 else a.json()["error"]["code"]) for who, a in answers.items()
    }


def table(ours: tuple[int, str | None], others: tuple[int, str | None]) -> dict[str, tuple[int, str | None]]:
    """Holder and participant alike; everybody else alike, administrators too; nobody is always 401."""
    return {"maya": ours, "noor": ours, "tomas": others, "root": others, "nobody": NOBODY}


def retry_after(c: Cluster, who: str = "maya") -> int:
    return int(c.chat(who).headers["Retry-After"])


@contextmanager
def long_request(c: Cluster, who: str) -> Iterator[threading.Event]:
    """A stream that goes on until it is cut or ends; the event is set when it has ended."""
    begun, ended = threading.Event(), threading.Event()

    def run() -> None:
        body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2000, "stream": True}
        headers = {"Authorization": f"Bearer {c.keys[who]}"}
        try:
            with httpx.stream(
                "POST", f"{c.gateway_url}/v1/chat/completions", json=body, headers=headers, timeout=60
            ) as answer:
                for _ in answer.iter_lines():
                    begun.set()
        except httpx.HTTPError:
            pass  # being cut is what this request is for
        finally:
            begun.set()
            ended.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert begun.wait(10)
    yield ended
    assert ended.wait(30)


def until_waiting(c: Cluster) -> None:
    """Until the channel waits for a retry that is more than a second away: time to look at every caller."""

    def look() -> bool:
        channel = c.channel()
        retry_at = (channel["failure"] or {}).get("retry_at")
        if channel["phase"] != "retry_wait" or not retry_at:
            return False
        return (datetime.fromisoformat(retry_at) - datetime.now(UTC)).total_seconds() > 1

    c.until(look, 15, "nothing serves, it waits")


def test_not_reserved(sim: Cluster, sim_folder: Path) -> None:
    assert seen(sim) == table(SERVED, SERVED)
    with long_request(sim, "tomas"):
        sim.set_default("other")
        sim.until(lambda: sim.channel()["phase"] == "draining", 20, "draining")
        switching = (503, "model_switching")
        assert seen(sim) == table(switching, switching)
        assert 1 <= retry_after(sim) <= 3 + 3 + 16, "drain left + stop + the first estimate of the load"
    sim.until_ready("other")

    sim_model(sim_folder, "ponderous", load_seconds=6)
    sim.until(lambda: len(sim.get("/models")["items"]) == 3, 10, "the new file is noticed")
    sim.set_default("ponderous")
    sim.until(lambda: sim.channel()["phase"] == "loading", 10, "loading")
    loading = (503, "model_loading")
    assert seen(sim) == table(loading, loading)
    assert retry_after(sim) >= 1

    sim.set_default(None)
    sim.until(lambda: sim.channel()["phase"] == "off", 15, "nothing is loaded")
    nothing = (503, "no_model")
    assert seen(sim) == table(nothing, nothing)

    sim_model(sim_folder, "broken", crash_at_load=1)
    sim.until(lambda: len(sim.get("/models")["items"]) == 4, 10, "the new file is noticed")
    sim.set_default("broken")
    sim.until(lambda: (f := sim.channel()["failure"]) and f["count"] >= 2, 15, "it has failed twice")
    until_waiting(sim)
    failed = (503, "model_failed")
    assert seen(sim) == table(failed, failed)
    assert retry_after(sim) >= 1


def test_reserved(sim: Cluster, sim_folder: Path) -> None:
    sim_model(sim_folder, "ponderous", load_seconds=4, token_ms=20)
    sim.until(lambda: len(sim.get("/models")["items"]) == 3, 10, "the new file is noticed")
    with long_request(sim, "tomas"):
        booking = sim.book("ponderous", 0, 600, participants=["noor"])
        sim.until(lambda: sim.channel()["phase"] == "draining", 20, "draining")
        assert seen(sim) == table((503, "model_switching"), RESERVED)
        assert retry_after(sim) >= 1
    sim.until(lambda: sim.channel()["phase"] == "loading", 10, "loading")
    assert seen(sim) == table((503, "model_loading"), RESERVED)
    assert retry_after(sim) >= 1
    sim.until_ready("ponderous")
    assert seen(sim) == table(SERVED, RESERVED)
    answer = sim.chat("maya", "ponderous")
    assert answer.headers["X-SlotServe-Model"] == "ponderous"
    assert 0 < int(answer.headers["X-SlotServe-Ends-In"]) <= 600
    assert sim.chat("maya", "nonsense").json()["error"]["code"] == "model_not_found"
    sim.post(f"/reservations/{booking['id']}/end", who="maya")
    sim.until_ready("base")
    assert seen(sim) == table(SERVED, SERVED)


def test_reserved_and_failing(sim: Cluster, sim_folder: Path) -> None:
    sim_model(sim_folder, "broken", crash_at_load=1)
    sim.until(lambda: len(sim.get("/models")["items"]) == 3, 10, "the new file is noticed")
    booking = sim.book("broken", 0, 600, participants=["noor"])
    sim.until_ready("base", fallback=True)
    assert seen(sim, "broken") == table(SERVED, RESERVED)
    answer = sim.chat("noor", "broken")
    assert answer.headers["X-SlotServe-Fallback"] == "true"
    sim.set_default(None)
    until_waiting(sim)
    assert seen(sim) == table((503, "model_failed"), RESERVED)
    assert retry_after(sim) >= 1
    sim.post(f"/reservations/{booking['id']}/end", who="maya")
    sim.until(lambda: sim.channel()["phase"] == "off", 15, "nothing is loaded")


def test_exclusive(sim: Cluster) -> None:
    booking = sim.book(None, 0, 600, participants=["noor"])
    sim.until(lambda: sim.channel()["phase"] == "off", 15, "the card is empty")
    assert sim.channel()["why"] == "exclusive"
    assert seen(sim) == table((503, "gpu_exclusive"), RESERVED)
    sim.post(f"/reservations/{booking['id']}/end", {"reason": "maintenance"})
    sim.until_ready("base")
    notices = sim.get("/notifications", who="maya")["items"]
    assert any(n["subject"] == booking["id"] for n in notices), "an administrator's act is told to the holder"


def test_others_requests_finish_when_a_booking_begins_on_the_same_target(sim: Cluster) -> None:
    with long_request(sim, "tomas") as ended:
        booking = sim.book("base", 0, 600)
        sim.until(lambda: sim.channel()["why"] == "reserved", 20, "the booking has begun")
        assert sim.channel()["phase"] == "ready"
        # The controller has decided; the plan is with the node a moment later.
        sim.until(lambda: "error" in sim.chat("tomas").json(), 20, "the node knows of the booking")
        assert sim.chat("tomas").json()["error"]["code"] == "gpu_reserved"
        assert not ended.is_set(), "a request that was admitted is not cut by a booking on the same target"
        sim.post(f"/reservations/{booking['id']}/end", who="maya")
        sim.set_default(None)  # ends the request: by the drain
