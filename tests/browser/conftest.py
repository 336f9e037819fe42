"""A browser a file, and one real fleet a session: a controller, two nodes with an agent and a gateway each, simulated engines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.visits import CHROMIUM, FLAGS, PATIENCE_MS, Visitor, served
from tests.console_scene import Scene, scene
from tests.parts import cannot_be_had, free_port
from tests.system.cluster import BIN, Cluster, ClusterError, Process
from tests.system.conftest import SIMULATED, sim_model

SCREENS = Path(__file__).parents[2] / ".parts" / "screens"  # pictures of every page, for people to look at


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Closed after each file: while it is open its event loop counts as running, and no other can be run."""
    if not CHROMIUM.exists():
        cannot_be_had("chromium", f"{CHROMIUM} is not there (Debian's package chromium)")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def world(tmp_path: Path) -> Scene:
    """The made-up scene, without limits."""
    return scene(tmp_path, max_booking_hours=0)


@pytest.fixture
def server(world: Scene) -> Iterator[str]:
    """Its address."""
    with served(world.app) as url:
        yield url


@pytest.fixture
def visit(browser: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Visitor]]:
    """Opens a person's browser at the scene, or at `url`."""
    visits: list[Visitor] = []

    def make(*args: Any, url: str | None = None, **more: Any) -> Visitor:
        visits.append(Visitor(browser, url or request.getfixturevalue("server"), *args, **more))
        return visits[-1]

    yield make
    for one in visits:
        one.context.close()


CHANNELS = ("n1/main", "n1/half", "n2/side")


class Fleet(Cluster):
    """A cluster with a second node `n2`, whose channel `side` has the same models."""

    def __init__(self, folder: Path) -> None:
        channel = {"folder": folder, "engines": ["simulated"]}
        super().__init__(SIMULATED, {"main": channel, "half": channel})
        self.folder = folder
        self.second: list[Process] = []

    def __enter__(self) -> Fleet:
        super().__enter__()
        try:
            self._join_second()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *about: Any) -> None:
        for process in reversed(self.second):
            with contextlib.suppress(ClusterError):
                process.stop()
        if self.second:
            with contextlib.suppress(ClusterError):
                once = Process("stop-n2", [str(BIN / "slotserve-agent"), "stop-engines"], self.second[0].env, self.root)
                once.start()
                assert once.popen is not None
                once.popen.wait(60)
        super().__exit__(*(about or (None, None, None)))

    def _join_second(self) -> None:
        own = self.root / "n2"
        own.mkdir()
        lines = ['node = "n2"', "[gateway]", f'listen = ["127.0.0.1:{free_port()}"]']
        command = ", ".join(f'"{word}"' for word in SIMULATED["simulated"]["command"])
        lines += ["[engines.simulated]", f"command = [{command}]", "[[channels]]", 'name = "side"']
        lines += [f'model_folders = ["{self.folder}"]', 'engines = ["simulated"]']
        (own / "node.toml").write_text("\n".join(lines) + "\n")
        env = {**self.env, "SLOTSERVE_AGENT_STATE_DIR": str(own / "a"), "SLOTSERVE_NODE_FILE": str(own / "node.toml")}
        first, self.env = self.env, env
        try:
            self.run_cli("slotserve-agent", "enrol", self.post("/nodes", {"name": "n2"})["join"])
        finally:
            self.env = first
        for what in ("run", "gateway"):
            self.second.append(Process(f"n2-{what}", [str(BIN / "slotserve-agent"), what], env, self.root))
            self.second[-1].start()
        self.until(lambda: self.named("n2")["online"], 30, "the second node is online")

    def named(self, name: str) -> Any:
        return next(n for n in self.get("/nodes")["items"] if n["name"] == name)


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("models")
    for name in ("base", "other"):
        sim_model(folder, name, load_seconds=0.3, token_ms=5)
    with Fleet(folder) as fleet:
        for name in ("base", "other"):
            fleet.until_known(name, *CHANNELS)
        for channel in ("main", "half"):
            fleet.set_default("base", channel=channel)
        fleet._good(fleet.request("PATCH", "/channels/n2/side", {"default_model": "base"}))
        fleet.until_ready("base")
        yield fleet
