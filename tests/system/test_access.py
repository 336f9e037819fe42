"""Who may call, in every state a channel can be in: holder, participant, stranger, administrator and nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.system.cluster import Cluster, running
from tests.system.conftest import SIMULATED, sim_model

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]
SERVED = (200, None)
RESERVED = (403, "gpu_reserved")
DRAIN = 60
NOBODY = (401, "invalid_api_key")
TRIED_AGAIN = {(503, code) for code in ("model_switching", "model_loading", "model_failed")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models; `endless` is never ready, so that there is time to look at every caller while it loads."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("base", "other"):
        sim_model(folder, name, load_seconds=0.2, token_ms=20, tokens=5000)
    sim_model(folder, "endless", load_seconds=600)
    sim_model(folder, "broken", crash_at_load=1)
    return folder


@pytest.fixture(scope="module")
def patient(folder: Path) -> Iterator[Cluster]:
    """A drain lasts as long as a test needs it."""
    channels = {"main": {"folder": folder, "engines": ["simulated"]}}
    with running(SIMULATED, channels, {"SLOTSERVE_DRAIN_SECONDS": str(DRAIN)}) as cluster:
        yield cluster


@pytest.fixture
def sim(patient: Cluster) -> Cluster:
    patient.calm("base", models=4)
    return patient


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
    """A stream that goes on until it is left; the event is set when it has ended."""
    begun, ended, leave = threading.Event(), threading.Event(), threading.Event()

    def run() -> None:
        body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5000, "stream": True}
        headers = {"Authorization": f"Bearer {c.keys[who]}"}
        try:
            with c.http.stream("POST", f"{c.gateway_url}/v1/chat/completions", json=body, headers=headers) as answer:
                for _ in answer.iter_lines():
                    begun.set()
                    if leave.is_set():
                        break
        finally:
            begun.set()
            ended.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert begun.wait(20)
    try:
        yield ended
    finally:
        leave.set()
        assert ended.wait(20)


def until_seen(c: Cluster, ours: tuple[int, str | None], others: tuple[int, str | None], model: str = "auto") -> None:
    """Until all are answered so by a channel whose model fails. Between, while it is tried again, those who may call are
    told that; whoever is shut out never sees anything else."""
    expected = table(ours, others)

    def look() -> bool:
        found = seen(c, model)
        for who, answer in found.items():
            tried_again = expected[who] not in (RESERVED, NOBODY) and answer in TRIED_AGAIN
            assert answer == expected[who] or tried_again, f"{who} sees {answer}"
        return found == expected

    c.until(look, 30, f"{ours} and {others}")


def test_not_reserved(sim: Cluster) -> None:
    assert seen(sim) == table(SERVED, SERVED)
    with long_request(sim, "tomas"):
        sim.set_default("other")
        sim.until(lambda: sim.channel()["phase"] == "draining", 20, "draining")
        switching = (503, "model_switching")
        assert seen(sim) == table(switching, switching)
        assert 1 <= retry_after(sim) <= DRAIN + 3 + 16, "drain left + stop + the first estimate of the load"
    sim.until_ready("other")

    sim.set_default("endless")
    sim.until(lambda: sim.channel()["phase"] == "loading", 20, "loading")
    loading = (503, "model_loading")
    assert seen(sim) == table(loading, loading)
    assert retry_after(sim) >= 1

    sim.set_default(None)
    sim.until(lambda: sim.channel()["phase"] == "off", 20, "nothing is loaded")
    nothing = (503, "no_model")
    assert seen(sim) == table(nothing, nothing)

    sim.set_default("broken")
    sim.until(lambda: (f := sim.channel()["failure"]) and f["count"] >= 2, 30, "it has failed twice")
    failed = (503, "model_failed")
    until_seen(sim, failed, failed)
    assert retry_after(sim) >= 1


def test_reserved(sim: Cluster) -> None:
    with long_request(sim, "tomas"):
        booking = sim.book("endless", 0, 600, participants=["noor"])
        sim.until(lambda: sim.channel()["phase"] == "draining", 20, "draining")
        assert seen(sim) == table((503, "model_switching"), RESERVED)
        assert retry_after(sim) >= 1
    sim.until(lambda: sim.channel()["phase"] == "loading", 20, "loading")
    assert seen(sim) == table((503, "model_loading"), RESERVED)
    assert retry_after(sim) >= 1
    sim.post(f"/reservations/{booking['id']}/end", who="maya")

    booking = sim.book("other", 0, 600, participants=["noor"])
    sim.until_ready("other")
    assert seen(sim) == table(SERVED, RESERVED)
    answer = sim.chat("maya", "other")
    assert answer.headers["X-SlotServe-Model"] == "other"
    assert 0 < int(answer.headers["X-SlotServe-Ends-In"]) <= 600
    assert sim.chat("maya", "nonsense").json()["error"]["code"] == "model_not_found"
    sim.post(f"/reservations/{booking['id']}/end", who="maya")
    sim.until_ready("base")
    assert seen(sim) == table(SERVED, SERVED)


def test_reserved_and_failing(sim: Cluster) -> None:
    booking = sim.book("broken", 0, 600, participants=["noor"])
    sim.until_ready("base", fallback=True)
    until_seen(sim, SERVED, RESERVED, "broken")
    answer = sim.until(lambda: (a := sim.chat("noor", "broken")).status_code == 200 and a, 30, "no retry is under way")
    assert answer.headers["X-SlotServe-Fallback"] == "true"
    assert answer.headers["X-SlotServe-Model"] == answer.json()["model"] == "base"
    sim.set_default(None)
    sim.until(lambda: sim.channel()["phase"] == "retry_wait", 20, "nothing serves, it waits")
    until_seen(sim, (503, "model_failed"), RESERVED)
    assert retry_after(sim) >= 1
    sim.post(f"/reservations/{booking['id']}/end", who="maya")
    sim.until(lambda: sim.channel()["phase"] == "off", 20, "nothing is loaded")


def test_exclusive(sim: Cluster) -> None:
    booking = sim.book(None, 0, 600, participants=["noor"])
    sim.until(lambda: sim.channel()["phase"] == "off", 20, "the card is empty")
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
