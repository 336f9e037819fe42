"""`slotserve logs`: the end of what runs, from an offset, one launch after the other, until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server
from zoneinfo import ZoneInfo

import httpx
import pytest
from click.testing import CliRunner, Result

from controller.cli import logs
from controller.cli.app import App
from controller.cli.main import main
from controller.fleet.logs import Launch, LogStore
from tests.console_scene import Scene, scene
from tests.parts import wait_until

Run = Callable[..., Result]
CHANNEL = ("gpu-b01", "g0")


class World:
    """The scene with engines' output of one channel."""

    def __init__(self, folder: Path) -> None:
        self.scene: Scene = scene(folder)
        self.store = LogStore(folder / "logs")
        self.scene.ctx.logs = self.store

    def say(self, launch: str, text: str, **more: Any) -> None:
        """The engine of `launch` (they are one second apart by their number) says something."""
        what = Launch(launch, 1_700_000_000_000 + int(launch) * 1000, "m", None, "", **more)
        end = next((x["size"] for x in self.store.launches(*CHANNEL) if x["id"] == launch), 0)
        self.store.append(*CHANNEL, what, end, text.encode())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def run(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(logs, "PAUSE", 0.0)

    def call(*args: str, transport: Any = None) -> Result:
        scene = world.scene
        app = App(transport or httpx.WSGITransport(app=scene.app), lambda: scene.now, ZoneInfo("Asia/Shanghai"))
        env = {"SLOTSERVE_URL": "http://controller.test", "SLOTSERVE_API_KEY": scene.keys["maya"]}
        env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
        return CliRunner().invoke(main, ["logs", "/".join(CHANNEL), *args], obj=app, env=env)

    return call


class Follower(httpx.BaseTransport):
    """The application; before each answer the next of `events` happens, and after the last one Ctrl-C."""

    def __init__(self, world: World, *events: Callable[[], Any]) -> None:
        self._application = httpx.WSGITransport(app=world.scene.app)
        self._events = list(events)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self._events:
            raise KeyboardInterrupt
        self._events.pop(0)()
        return self._application.handle_request(request)


def quiet() -> None:
    """Nothing happens."""


def test_the_end_of_what_runs_as_people_read_it(run: Run, world: World) -> None:
    world.say("1", "loading\r 10 %\r100 %\n\x1b[31mready\x1b[0m\nlast words")
    assert run().output == "100 %\nready\nlast words"
    assert run("--raw").output == "loading\r 10 %\r100 %\n\x1b[31mready\x1b[0m\nlast words"
    assert run("--bytes", "5").output == "words"
    assert run("--bytes", "22").output == "last words", "not with half a line"


def test_long_output_comes_whole_in_pieces(run: Run, world: World) -> None:
    whole = "".join(f"line {n:06d}\n" for n in range(20_000))
    world.say("1", whole)
    assert run("--offset", "0").output == whole
    assert run("--offset", str(len(whole) - 12)).output == "line 019999\n"
    assert whole.endswith(run().output)


def test_for_scripts_with_offsets(run: Run, world: World) -> None:
    world.say("1", "one\n")
    said = json.loads(run("--json").output)
    assert (said["offset"], said["next_offset"], said["text"], said["launch"]["id"]) == (0, 4, "one\n", "1")
    world.say("1", "two\n")
    assert json.loads(run("--json", "--offset", "4").output)["text"] == "two\n"


def test_launches_are_listed_and_chosen(run: Run, world: World) -> None:
    world.say("1", "first\n", ended=True)
    world.say("2", "second\n", ended=True, failed=True)
    world.say("3", "third\n")
    listed = run("--launches").output.splitlines()
    assert [line.split()[0] for line in listed[1:]] == ["3", "2", "1"]
    assert [("runs" in x, "failed" in x, "ended" in x) for x in listed[1:]] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    assert [x["id"] for x in json.loads(run("--launches", "--json").output)["items"]] == ["3", "2", "1"]
    assert run("--launch", "1").output == "first\n"
    assert run("--previous").output == "second\n"
    assert run().output == "third\n"


def test_what_is_not_there_is_said_in_words(run: Run, world: World) -> None:
    for args, words in (
        ((), "there is no output of that run yet"),
        (("--previous",), "there is no output of the failed run before yet"),
        (("--launch", "9"), "there is no output"),
    ):
        answer = run(*args)
        assert answer.exit_code == 1
        assert words in answer.stderr
    assert run("--launches").output == "No output is kept.\n"
    assert run("--previous", "--launch", "1").exit_code == 2


def test_following_goes_on_with_the_next_launch_and_ends_with_ctrl_c(run: Run, world: World) -> None:
    def next_launch() -> None:
        world.say("1", "its last words\n", ended=True, failed=True)
        world.say("2", "again\n")

    world.say("1", "begun")
    events = (quiet, quiet, lambda: world.say("1", ", done\n"), quiet, next_launch, *(quiet,) * 6)
    answer = run("-f", transport=Follower(world, *events))
    assert answer.exit_code == 130
    assert answer.stdout == "begun, done\nits last words\nagain\n\n"
    assert "--- m, 2023-11-15 06:13:22 ---" in answer.stderr
    assert "Traceback" not in answer.output
    assert "Abort" not in answer.output


def test_following_waits_for_the_first_launch_and_through_an_outage(run: Run, world: World) -> None:
    def away() -> None:
        raise httpx.ConnectError("refused")

    events = (
        *(quiet, quiet, away, away),  # the second look is for the channel
        lambda: world.say("1", "one\n"),
        *(quiet, away, quiet),
        lambda: world.say("1", "two\n"),
        quiet,
    )
    answer = run("-f", transport=Follower(world, *events))
    assert answer.exit_code == 130
    assert answer.stdout.startswith("one\ntwo\n")
    assert answer.stderr.count("; waiting, Ctrl-C ends it") == 2, answer.stderr


def test_following_does_not_wait_for_a_channel_that_there_is_not(run: Run, world: World) -> None:
    app = App(httpx.WSGITransport(app=world.scene.app), lambda: world.scene.now, ZoneInfo("UTC"))
    env = {"SLOTSERVE_URL": "http://controller.test", "SLOTSERVE_API_KEY": world.scene.keys["maya"]}
    answer = CliRunner().invoke(main, ["logs", "gpu-b01/nowhere", "-f"], obj=app, env=env)
    assert answer.exit_code == 1
    assert "nowhere" in answer.stderr


def test_following_for_scripts_is_a_line_a_piece(run: Run, world: World) -> None:
    world.say("1", "one\n")
    events = (quiet, quiet, quiet, lambda: world.say("1", "two\n"), quiet, quiet)
    answer = run("-f", "--json", transport=Follower(world, *events))
    assert [json.loads(line)["text"] for line in answer.stdout.splitlines() if line] == ["one\n", "two\n"]


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def url(world: World) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, world.scene.app, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("command", [("logs", "/".join(CHANNEL), "-f"), ("status", "--watch")])
def test_ctrl_c_is_an_ordinary_end(world: World, url: str, tmp_path: Path, command: tuple[str, ...]) -> None:
    """The real program: SIGINT ends it without a word."""
    world.say("1", "gpu-b01/g0 speaks\n")
    env = {
        **os.environ,
        "SLOTSERVE_URL": url,
        "SLOTSERVE_API_KEY": world.scene.keys["maya"],
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    out = tmp_path / "out"
    with out.open("wb") as file:
        child = subprocess.Popen(
            [sys.executable, "-m", "controller.cli.main", *command],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=env,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as in a terminal
        )
    try:
        wait_until(lambda: "gpu-b01/g0" in out.read_text(), 30, "it has shown something")
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130
    finally:
        child.kill()
        child.wait()
    assert "Traceback" not in out.read_text()
    assert "Abort" not in out.read_text()
