"""Processes killed at the worst moments, with the simulated engine: never two engines, and it ends where the plan says."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.runtime import proc
from agent.runtime.records import CHANNEL_MARKER, LAUNCH_MARKER
from tests.parts import pid_alive
from tests.system.cluster import Cluster, Process, running
from tests.system.conftest import SIMULATED, sim_model

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


@pytest.fixture
def kills(tmp_path: Path) -> Iterator[Cluster]:
    """Channel `main`: `base` (default, loaded) and `other` load at once and stream for long, `ponderous` takes its time to
    load, `stubborn` ends by SIGKILL only."""
    folder = tmp_path / "models"
    folder.mkdir()
    sim_model(folder, "base", load_seconds=0.2, token_ms=20, tokens=5000)
    sim_model(folder, "other", load_seconds=0.2, token_ms=20, tokens=5000)
    sim_model(folder, "ponderous", load_seconds=4)
    sim_model(folder, "stubborn", load_seconds=0.2, ignore_sigterm=1)
    with running(SIMULATED, {"main": {"folder": folder, "engines": ["simulated"]}}) as cluster:
        cluster.until(lambda: len(cluster.get("/models")["items"]) == 4, 20, "the models are known")
        cluster.set_default("base")
        cluster.until_ready("base")
        with one_engine_at_most(cluster):
            yield cluster


def engines(c: Cluster) -> list[int]:
    """Pids of the engines of channel `main` that live now, found without any record."""
    marked = proc.marked(CHANNEL_MARKER, str(c.root / "a" / "channels" / "main"))
    return [s.pid for s in marked if "agent.simulated_engine" in proc.command(s.pid, 1000) and not asked(s.pid)]


def asked(pid: int) -> bool:
    """Whether it is only asked about its arguments, or gone meanwhile."""
    with suppress(OSError):
        return any(e.startswith(f"{LAUNCH_MARKER}=asked-".encode()) for e in proc.environ(pid))
    return True


@contextmanager
def one_engine_at_most(c: Cluster) -> Iterator[None]:
    """Looks all the time, from the machine's side."""
    stop, seen = threading.Event(), []

    def look() -> None:
        while not stop.wait(0.03):
            if len(found := engines(c)) > 1:
                seen.append(found)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not seen, f"two engines at once: {seen}"


@contextmanager
def stream(c: Cluster, who: str = "tomas") -> Iterator[list[str]]:
    """A stream that lasts until it is cut; the list fills with its lines, "end" or "broken" comes last."""
    lines: list[str] = []
    body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3000, "stream": True}
    headers = {"Authorization": f"Bearer {c.keys[who]}"}

    def read() -> None:
        try:
            with httpx.stream(
                "POST", f"{c.gateway_url}/v1/chat/completions", json=body, headers=headers, timeout=60
            ) as answer:
                for line in answer.iter_lines():
                    lines.append(line)  # noqa: PERF402  others look at it meanwhile
        except httpx.HTTPError:
            lines.append("broken")
        else:
            lines.append("end")

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    c.until(lambda: lines, 10, "the stream has begun")
    yield lines
    thread.join(30)
    assert not thread.is_alive()


def restart_killed(c: Cluster, process: Process) -> None:
    process.stop(signal.SIGKILL)
    if process is c.controller:
        c.start_controller()
    else:
        process.start()


def until_phase(c: Cluster, phase: str, seconds: float = 10) -> None:
    c.until(lambda: c.channel()["phase"] == phase, seconds, phase)


def test_agent_killed_while_draining_stopping_and_loading(kills: Cluster) -> None:
    with stream(kills) as lines:
        kills.set_default("other")
        until_phase(kills, "draining")
        restart_killed(kills, kills.agent)
        kills.until_ready("other")
    assert any("model_switching" in line for line in lines[-4:]), "what was cut at the drain's end was told"

    kills.set_default("stubborn")
    kills.until_ready("stubborn")
    (pid,) = engines(kills)
    kills.set_default("base")
    until_phase(kills, "stopping")
    restart_killed(kills, kills.agent)
    kills.until_ready("base")
    assert not pid_alive(pid)

    kills.set_default("ponderous")
    until_phase(kills, "loading")
    kills.until(lambda: engines(kills), 20, "the engine's process")
    (pid,) = engines(kills)
    restart_killed(kills, kills.agent)
    kills.until_ready("ponderous")
    assert engines(kills) == [pid], "what was loading is adopted"

    kills.set_default("base")
    kills.until_ready("base")
    kills.set_default("ponderous")
    until_phase(kills, "loading")
    kills.agent.stop(signal.SIGKILL)
    kills.set_default("other")  # while the agent is away
    kills.agent.start()
    kills.until_ready("other")
    assert kills.chat("tomas").json()["model"] == "other"
    assert kills.channel()["failure"] is None


def test_shim_killed_takes_the_engine_with_it_and_it_comes_back(kills: Cluster) -> None:
    record = json.loads((kills.root / "a" / "channels" / "main" / "run.json").read_text())
    with stream(kills) as lines:
        os.kill(record["shim_pid"], signal.SIGKILL)
        kills.until(lambda: not pid_alive(record["engine_pid"]), 20, "the engine dies with its shim")
    assert lines[-1] == "broken" or any("error" in line for line in lines[-4:]), (
        "the stream did not end as if all were well"
    )
    channel = kills.until(lambda: (c := kills.channel())["failure"] and c, 10, "the failure is told")
    assert "shim was killed" in channel["failure"]["reason"]
    kills.until_ready("base")
    assert engines(kills) != [record["engine_pid"]]
    assert kills.chat("tomas").status_code == 200


def test_gateway_killed_and_started_again(kills: Cluster) -> None:
    """It serves again, forgets the streams that died with it, and drains what it has let in since."""
    with stream(kills) as lines:
        kills.until(lambda: kills.channel()["in_flight"] == 1, 20, "one request runs")
        (pid,) = engines(kills)
        restart_killed(kills, kills.gateway)
    assert lines[-1] == "broken"
    kills.until(lambda: kills.chat("tomas").status_code == 200, 10, "it serves again")
    kills.until(lambda: kills.channel()["in_flight"] == 0, 10, "nothing runs any more")
    assert engines(kills) == [pid], "the engine does not notice"

    with stream(kills) as lines:
        kills.until(lambda: kills.channel()["in_flight"] == 1, 20, "one request runs")
        kills.set_default("other")
        until_phase(kills, "draining")
        assert engines(kills) == [pid], "what runs is drained, not cut"
        count = len(lines)
        kills.until(lambda: len(lines) > count + 10, 20, "the stream goes on while it is drained")
    assert any("model_switching" in line for line in lines[-4:])
    kills.until_ready("other")

    with stream(kills) as lines:  # killed in a drain: what it had let in is gone, so there is nothing to wait for
        kills.set_default("base")
        until_phase(kills, "draining")
        restart_killed(kills, kills.gateway)
    kills.until_ready("base")
    kills.until(lambda: kills.chat("tomas").status_code == 200, 10, "it serves again")
    kills.until(lambda: kills.channel()["in_flight"] == 0, 20, "nothing is counted that does not run")


class Callers:
    """People who ask all the time, and what became of it."""

    def __init__(self, c: Cluster) -> None:
        self._c, self._stop = c, threading.Event()
        self.outcomes: Counter[str] = Counter()
        self.threads = [threading.Thread(target=self._ask, args=(who,)) for who in ("maya", "tomas")]

    def __enter__(self) -> Callers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        for thread in self.threads:
            thread.join()

    def _ask(self, who: str) -> None:
        while not self._stop.wait(0.05):
            try:
                answer = self._c.chat(who)
                code = "" if answer.status_code == 200 else f" {answer.json()['error']['code']}"
                self.outcomes[f"{answer.status_code}{code}"] += 1
            except httpx.HTTPError:
                self.outcomes["connection lost"] += 1


SWITCHES = int(os.environ.get("CHAOS_SWITCHES", "10"))  # `make test-chaos`: 200


@pytest.mark.timeout(60 + 20 * SWITCHES)
def test_random_kills_during_switches(kills: Cluster) -> None:
    """Switches, something of everything killed in each, people asking all the time: everything agrees in the end."""
    dice = random.Random(int(os.environ.get("CHAOS_SEED", "20270117")))
    record = kills.root / "a" / "channels" / "main" / "run.json"
    victims = ["agent", "gateway", "controller", "engine", "shim", "agent", "gateway", "engine", "agent", "agent"]
    victims *= -(-SWITCHES // len(victims))
    dice.shuffle(victims)
    del victims[SWITCHES:]
    with Callers(kills) as callers:
        for number, victim in enumerate(victims):
            wanted = ("other", "base")[number % 2]
            kills.set_default(wanted)
            time.sleep(dice.uniform(0, 0.8))
            if victim in ("engine", "shim"):
                pid = json.loads(record.read_text())[f"{victim}_pid"]
                if pid_alive(pid):
                    os.kill(pid, signal.SIGKILL)
            else:
                restart_killed(kills, getattr(kills, victim))
            if dice.random() < 0.5:
                kills.until_ready(wanted)
    kills.set_default("base")
    kills.until_ready("base")
    kills.until(lambda: kills.node()["online"], 15, "the node is there")
    # The gateway may be the last that was killed: until it listens again, nobody answers.
    kills.until(lambda: kills.chat("tomas").status_code == 200, 15, "the gateway answers")
    assert kills.chat("tomas").json()["model"] == "base"
    assert len(engines(kills)) == 1
    assert engines(kills) == kills.engine_pids()
    kills.until(lambda: kills.channel()["in_flight"] == 0, 10, "nothing is counted that does not run")
    allowed = {
        "200",
        "connection lost",  # at the gateway's death
        *(f"503 {code}" for code in ("model_switching", "model_loading", "model_failed", "no_model")),
        "502 model_failed",  # asked of an engine that died before it answered
    }
    print(f"{SWITCHES} switches, {len(victims)} kills; answers: {dict(callers.outcomes)}")
    assert callers.outcomes["200"] > 20
    assert set(callers.outcomes) <= allowed, callers.outcomes
