"""Engines outlive their agent: a real agent process starts one and is killed; another runtime finds it again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.runtime import adoption, proc, records, stopping
from agent.runtime.records import CHANNEL_MARKER
from tests.agent.runtime.runtimes import runtime, start, until_ready
from tests.parts import ROOT, pid_alive, wait_until

pytestmark = pytest.mark.slow  # real processes

Agent = Callable[..., dict[str, Any]]


@pytest.fixture
def killed_agent(folder: Path) -> Agent:
    """Runs an agent until its engine is where asked, and kills it with SIGKILL."""

    def run(state: str, *args: str) -> dict[str, Any]:
        command = [sys.executable, str(ROOT / "tests" / "fakes" / "runtime_agent.py"), str(folder), state, *args]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, cwd=ROOT, start_new_session=True) as agent:
            assert agent.stdout is not None
            said = json.loads(agent.stdout.readline())
            agent.kill()
        return said

    return run


def test_ready_engine_is_adopted_as_the_same_process(folder: Path, killed_agent: Agent) -> None:
    was = killed_agent("ready")
    assert pid_alive(was["engine"])

    async def story() -> None:
        r = runtime(folder)
        p = r.adopt()
        assert p is not None
        assert (p.engine_pid, p.shim_pid, p.launch_id, p.was_ready) == (was["engine"], was["shim"], was["launch"], True)
        assert p.model == "m"
        assert await r.probe(p)
        assert r.died_unwatched is None
        assert await r.stop(p, 2.0), "an adopted one is no child, and ends all the same"
        assert not pid_alive(was["engine"])
        assert r.adopt() is None

    asyncio.run(story())


def test_loading_engine_is_adopted_and_its_exit_is_seen(folder: Path, killed_agent: Agent) -> None:
    was = killed_agent("loading", "--fake-load", "0.6")

    async def story() -> None:
        r = runtime(folder)
        p = r.adopt()
        assert p is not None
        assert not p.was_ready
        await until_ready(r, p)
        watcher = asyncio.ensure_future(r.wait_exit(p))
        await asyncio.sleep(0)
        os.kill(was["engine"], signal.SIGKILL)
        assert (await asyncio.wait_for(watcher, 20)).category in ("crashed", "killed_by_kernel")

    asyncio.run(story())


def test_engine_that_died_while_nobody_watched(folder: Path, killed_agent: Agent) -> None:
    was = killed_agent("ready", "--fake-worker")
    os.kill(was["engine"], signal.SIGKILL)
    wait_until(lambda: not pid_alive(was["shim"]), what="the shim has written the exit record")
    r = runtime(folder)
    assert r.adopt() is None
    assert r.died_unwatched is not None
    process, trouble = r.died_unwatched
    assert process.launch_id == was["launch"]
    assert process.was_ready
    assert trouble.category in ("crashed", "killed_by_kernel")
    assert [x.failed for x in r.logs.launches()] == [True]
    assert proc.marked(CHANNEL_MARKER, str(r.paths.root)) == []


def test_killed_shim_leftovers_are_ended_at_adoption(folder: Path, killed_agent: Agent) -> None:
    was = killed_agent("ready", "--fake-worker")
    os.kill(was["shim"], signal.SIGKILL)
    wait_until(lambda: not pid_alive(was["engine"]), what="the engine died with its shim")
    r = runtime(folder)
    left = proc.marked(CHANNEL_MARKER, str(r.paths.root))
    assert len(left) == 1, "a worker in a session of its own is left"
    assert r.adopt() is None
    assert not pid_alive(left[0].pid)
    assert r.died_unwatched is not None
    assert "shim was killed" in r.died_unwatched[1].reason


def test_leftover_of_an_older_launch_goes_and_the_engine_stays(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        p = await start(r)
        env = {records.CHANNEL_MARKER: str(r.paths.root), records.LAUNCH_MARKER: "0000000000000-older000"}
        old = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], env=env)
        wait_until(lambda: proc.marked(records.LAUNCH_MARKER, "0000000000000-older000"))
        again = runtime(folder)
        found = again.adopt()
        assert found is not None
        assert found.engine_pid == p.engine_pid
        assert old.wait(2) == -signal.SIGKILL
        assert pid_alive(p.engine_pid)
        assert await again.stop(found, 2.0)

    asyncio.run(story())


def test_engine_being_stopped_is_not_adopted_but_waited_for(folder: Path, killed_agent: Agent) -> None:
    was = killed_agent("stopping", "--fake-deaf")

    async def story() -> None:
        r = runtime(folder)
        assert r.adopt() is None
        assert pid_alive(was["engine"]), "it has its time-out"
        p = await start(r)
        assert not pid_alive(was["engine"]), "nothing is started beside it"
        assert await r.stop(p, 2.0)
        assert r.died_unwatched is None

    asyncio.run(story())


@pytest.mark.parametrize(
    "change",
    [{"boot_id": "another boot"}, {"shim_ticks": 1}, {"engine_ticks": 1, "shim_ticks": 1}],
    ids=["another boot", "pid used again", "both used again"],
)
def test_a_pid_alone_proves_nothing(folder: Path, change: dict[str, Any]) -> None:
    async def story() -> None:
        r = runtime(folder)
        bystander = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
        try:
            p = await start(r)
            assert await r.stop(p, 2.0)
            r.paths.exit.unlink()
            record = json.loads(r.paths.run.read_text())
            record |= {"shim_pid": bystander.pid, "engine_pid": bystander.pid, **change}
            r.paths.run.write_text(json.dumps(record))
            r.paths.stop.unlink(missing_ok=True)
            again = runtime(folder)
            assert again.adopt() is None
            assert bystander.poll() is None, "it is not ours"
            p = await start(again)
            assert bystander.poll() is None
            assert await again.stop(p, 2.0)
        finally:
            bystander.kill()
            bystander.wait()

    asyncio.run(story())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"launch_id": "x"}', '{"unknown": true}'])
def test_a_run_record_that_cannot_be_read_is_none(folder: Path, text: str) -> None:
    r = runtime(folder)
    r.paths.root.mkdir(parents=True)
    r.paths.run.write_text(text)
    assert r.adopt() is None


def test_zombies_are_dead(folder: Path) -> None:
    child = subprocess.Popen(["true"])
    wait_until(lambda: (s := proc.stat(child.pid)) is not None and s.state == "Z")
    found = proc.stat(child.pid)
    assert found is not None
    assert not proc.alive(child.pid, found.ticks)
    child.wait()


def test_stop_engines_without_an_agent(folder: Path, killed_agent: Agent) -> None:
    was = killed_agent("ready", "--fake-deaf")
    (paths,) = adoption.channel_folders(folder)
    assert asyncio.run(adoption.stop_engine(paths, 0.3)) == []
    assert not pid_alive(was["engine"])
    assert asyncio.run(adoption.stop_engine(paths, 0.3)) == [], "nothing runs: gone"
    assert runtime(folder).adopt() is None


def test_stop_engines_waits_for_one_that_is_on_its_way_down(folder: Path, killed_agent: Agent) -> None:
    was = killed_agent("stopping", "--fake-deaf")
    (paths,) = adoption.channel_folders(folder)
    assert pid_alive(was["engine"]), "it has its time-out"
    assert asyncio.run(adoption.stop_engine(paths, 0.3)) == []
    assert not pid_alive(was["engine"])


def test_what_cannot_be_stopped_is_named(folder: Path, killed_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    was = killed_agent("ready", "--fake-deaf")
    monkeypatch.setattr(stopping, "SHIM_GRACE", 0.1)
    monkeypatch.setattr(stopping, "GIVE_UP", 0.3)
    (paths,) = adoption.channel_folders(folder)
    with monkeypatch.context() as patch:
        patch.setattr(proc, "send", lambda *_: False)
        patch.setattr(proc, "send_all", lambda *_: None)
        left = asyncio.run(adoption.stop_engine(paths, 0.1))
    assert set(left) >= {was["engine"], was["shim"]}


def test_engines_of_channels_that_are_no_longer_declared_are_stopped(folder: Path, killed_agent: Agent) -> None:
    def stop(state: Path, *declared: str) -> dict[str, list[int]]:
        return asyncio.run(adoption.stop_undeclared(state, declared, 1.0))

    was = killed_agent("ready")
    assert stop(folder, "main", "other") == {}
    assert pid_alive(was["engine"])
    assert stop(folder, "other") == {"main": []}
    assert not pid_alive(was["engine"])
    assert stop(folder, "other") == {}
    assert stop(folder / "nowhere", "other") == {}
