"""What engines compile is kept over launches, and put aside before a start where it has grown too large."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from agent.runtime import adoption, proc
from agent.runtime.caches import CacheFolder, size_of
from agent.runtime.records import ChannelPaths
from tests.agent.runtime.runtimes import runtime, start, until_ready
from tests.parts import wait_until


def filled(path: Path, size: int = 100_000) -> None:
    (path / "deep" / "er").mkdir(parents=True)
    (path / "deep" / "er" / "kernel.so").write_bytes(b"x" * size)


def test_the_size_is_what_lies_below_it(tmp_path: Path) -> None:
    filled(tmp_path / "cache")
    (tmp_path / "cache" / "loop").symlink_to(tmp_path)
    assert 100_000 <= size_of(tmp_path / "cache") < 150_000
    assert size_of(tmp_path / "nowhere") == 0


def test_one_within_its_limit_stays(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache", 1_000_000)
    cache.before_start()
    filled(cache.path)
    cache.measure()
    cache.before_start()
    assert (cache.path / "deep" / "er" / "kernel.so").exists()


def test_one_over_its_limit_is_gone_before_the_next_start(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache", 50_000)
    filled(cache.path)
    cache.before_start()
    assert cache.path.exists(), "not measured yet"
    cache.measure()
    cache.before_start()
    assert not cache.path.exists()
    wait_until(lambda: not os.listdir(tmp_path), what="what was put aside is removed")


def test_leftovers_of_an_agent_that_was_killed_go(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache", 50_000)
    filled(tmp_path / "cache.old-1234")
    cache.measure_aside()
    wait_until(lambda: not os.listdir(tmp_path))


def test_a_launch_finds_what_the_one_before_has_left(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        places = set()
        for _ in range(2):
            p = await start(r)
            await until_ready(r, p)
            environ = dict(e.decode().partition("=")[::2] for e in proc.environ(p.engine_pid))
            places.add((environ["XDG_CACHE_HOME"], environ["CUDA_CACHE_PATH"]))
            assert environ["XDG_CACHE_HOME"] not in environ["HOME"], "that one is private to the launch"
            (Path(environ["XDG_CACHE_HOME"]) / "compiled").write_text("kernel")
            assert await r.stop(p, 3.0)
        assert places == {(str(r.paths.cache), f"{r.paths.cache}/cuda")}
        assert (r.paths.cache / "compiled").read_text() == "kernel"
        assert r.paths.cache.stat().st_mode & 0o777 == 0o700
        wait_until(lambda: (r.cache.size or 0) > 0, what="it is measured after a launch")

    asyncio.run(story())


def test_it_goes_with_its_channel(tmp_path: Path) -> None:
    for name in ("main", "gone"):
        filled(tmp_path / "channels" / name / "cache")
        (tmp_path / "channels" / name / "logs").mkdir()
    adoption.drop_caches(tmp_path, ["main"])
    left = {p.relative_to(tmp_path / "channels").as_posix() for p in (tmp_path / "channels").glob("*/*")}
    assert left == {"main/cache", "main/logs", "gone/logs"}
    assert ChannelPaths(tmp_path / "channels" / "main").cache.is_dir()
