"""What is looked at before an engine is started, with real processes: what is refused, in words, and what the program
itself is asked."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.interfaces import StartFailed
from agent.runtime import preflight, preparation, proc, spawn
from tests.agent.runtime.runtimes import launch, runtime, start, until_ready
from tests.parts import pid_alive, wait_until

pytestmark = pytest.mark.slow  # real processes


@pytest.mark.parametrize(
    ("change", "category", "words"),
    [
        ({"engine": "vllm"}, "bad_argument", "channel main has no engine vllm (it has: llama.cpp, simulated)"),
        ({"model": "nobody"}, "missing_file", "model nobody is not in the channel's model folders"),
        ({"model": "empty"}, "broken_file", "empty.gguf is empty"),
        ({"model": "big"}, "missing_file", "part 2 of 2 is missing"),
        ({"model": "folder"}, "bad_argument", "llama.cpp cannot load safetensors"),
    ],
)
def test_what_is_known_before_a_start(folder: Path, change: dict[str, Any], category: str, words: str) -> None:
    async def story() -> None:
        r = runtime(folder)
        models = folder / "models"
        (models / "empty.gguf").touch()
        (models / "big-00001-of-00002.gguf").write_bytes(b"GGUF")
        (models / "folder").mkdir()
        (models / "folder" / "config.json").touch()
        (models / "folder" / "x.safetensors").touch()
        assert await r.preflight(launch()) is None
        found = await r.preflight(launch(**change))
        assert found is not None
        assert found.category == category
        assert words in found.reason
        with pytest.raises(StartFailed) as refused:
            await start(r, **change)
        assert refused.value.trouble == found

    asyncio.run(story())


def test_program_that_is_not_there(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder, ["/nonexistent/llama-server"])
        found = await r.preflight(launch())
        assert found is not None
        assert "/nonexistent/llama-server is not there" in found.reason

    asyncio.run(story())


def test_program_that_cannot_be_executed(folder: Path) -> None:
    async def story() -> None:
        program = folder / "llama-server"
        program.write_text("#!/no/such/interpreter\n")
        program.chmod(0o755)
        with pytest.raises(StartFailed) as refused:
            await start(runtime(folder, [str(program)]))
        assert refused.value.trouble.category == "missing_file"

    asyncio.run(story())


@pytest.mark.parametrize("where", ["spawn", "logs"])
def test_a_full_disk_is_told_in_words(folder: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/state/file")

    async def story() -> None:
        r = runtime(folder)
        with monkeypatch.context() as patch:
            patch.setattr(f"agent.runtime.{where}.write_json", full)
            with pytest.raises(StartFailed) as refused:
                await start(r)
        assert "is full: free some space on the node" in refused.value.trouble.reason
        p = await start(r)
        await until_ready(r, p)
        assert await r.stop(p, 2.0)

    asyncio.run(story())


def test_the_channels_own_environment_counts_more_than_the_engines(folder: Path) -> None:
    async def story() -> None:
        r = runtime(
            folder, env={"HIP_VISIBLE_DEVICES": "0", "A": "engine"}, env_of_channel={"HIP_VISIBLE_DEVICES": "1"}
        )
        p = await start(r)
        environ = dict(e.decode().partition("=")[::2] for e in proc.environ(p.engine_pid))
        assert (environ["HIP_VISIBLE_DEVICES"], environ["A"], environ["CUDA_VISIBLE_DEVICES"]) == ("1", "engine", "")
        assert await r.stop(p, 2.0)

    asyncio.run(story())


def test_on_a_full_disk_old_output_makes_room_for_a_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        r = runtime(folder)
        for _ in range(2):
            p = await start(r)
            await until_ready(r, p)
            assert await r.stop(p, 2.0)
        monkeypatch.setattr(spawn, "_free", lambda _: 0)
        p = await start(r)
        await until_ready(r, p)
        assert len(r.logs.launches()) == 2, "the last one's words and its own"
        assert await r.stop(p, 2.0)

    asyncio.run(story())


def test_file_that_came_after_the_last_look_is_found(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        (folder / "models" / "new.gguf").write_bytes(b"GGUF")
        assert await r.preflight(launch(model="new")) is None
        (folder / "models" / "new.gguf").unlink()
        found = await r.preflight(launch(model="new"))
        assert found is not None
        assert found.category == "missing_file"

    asyncio.run(story())


def test_a_socket_path_that_is_too_long_is_told_with_its_remedy(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder, run_dir=folder / ("x" * 100))
        found = await r.preflight(launch())
        assert found is not None
        assert "at most 107" in found.reason
        assert "SLOTSERVE_AGENT_RUN_DIR" in found.reason

    asyncio.run(story())


def test_a_disk_that_does_not_answer_is_a_failure_in_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network disk that is gone neither blocks the loop nor keeps a start for ever."""
    monkeypatch.setattr(preparation, "LONGEST", 0.2)
    goes_on = threading.Event()

    async def story() -> None:
        r = runtime(folder)
        assert await r.preflight(launch()) is None
        exists = Path.exists
        with monkeypatch.context() as patch:
            patch.setattr(Path, "exists", lambda path: goes_on.wait(10) and exists(path))
            beats = asyncio.ensure_future(asyncio.sleep(0.1))
            found = await r.preflight(launch())
            assert beats.done(), "the loop went on"
            assert found is not None
            assert (found.category, "does not answer" in found.reason) == ("hung", True)
            with pytest.raises(StartFailed) as refused:
                await start(r)
            assert refused.value.trouble == found
            goes_on.set()
        assert await r.preflight(launch()) is None

    asyncio.run(story())


ASKED = """#!/bin/sh
echo "$@" >> {0}/asked
case "$*" in *nonsense*) echo 'error while handling argument "-ctk": Unsupported cache type: nonsense' >&2; exit 1;; esac
exit 0
"""


def test_the_program_is_asked_once_as_long_as_it_is_the_same(folder: Path) -> None:
    program = folder / "llama-server"
    program.write_text(ASKED.format(folder))
    program.chmod(0o755)

    def asked() -> int:
        return len((folder / "asked").read_text().splitlines())

    async def story() -> None:
        r = runtime(folder, [str(program)])
        for _ in range(3):
            assert await r.preflight(launch("-c", "512")) is None
        assert asked() == 1
        for _ in range(3):
            found = await r.preflight(launch("-ctk", "nonsense"))
            assert found is not None
            assert (found.category, "-ctk" in found.reason) == ("bad_argument", True)
        assert asked() == 2
        program.write_text(ASKED.format(folder) + "# a newer one\n")
        assert await r.preflight(launch("-c", "512")) is None
        assert asked() == 3
        assert "run/main.sock" not in (folder / "asked").read_text(), "it could take the socket of what serves"

    asyncio.run(story())


def test_a_program_that_does_not_end_when_asked_is_no_hindrance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "ASK_TIMEOUT", 0.2)
    program = folder / "llama-server"
    program.write_text(f"#!/bin/sh\necho $$ > {folder}/pid\nsleep 60\n")
    program.chmod(0o755)
    assert asyncio.run(runtime(folder, [str(program)]).preflight(launch())) is None
    wait_until(lambda: not pid_alive(int((folder / "pid").read_text())))


def test_what_the_program_starts_when_asked_ends_with_the_question(folder: Path) -> None:
    """A wrapper that puts something into the background, in a session of its own, with its output elsewhere."""
    program = folder / "llama-server"
    program.write_text(f"#!/bin/sh\nsetsid sh -c 'trap \"\" TERM; echo $$ > {folder}/pid; sleep 60' > /dev/null 2>&1 &\n"
                       f"while [ ! -s {folder}/pid ]; do sleep 0.01; done\n")  # fmt: skip
    program.chmod(0o755)
    assert asyncio.run(runtime(folder, [str(program)]).preflight(launch())) is None
    wait_until(lambda: not pid_alive(int((folder / "pid").read_text())))
