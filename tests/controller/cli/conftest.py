"""The scene behind the command line, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest
from click.testing import CliRunner, Result

from controller.cli.app import App
from controller.cli.main import main
from tests.console_scene import Scene, scene
from tests.controller.cli.commands import Run


@pytest.fixture
def world(tmp_path: Path) -> Scene:
    return scene(tmp_path, max_booking_hours=0)


@pytest.fixture
def run(world: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("maya", "book", …)`: the command as that person (None: without a key)."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("SLOTSERVE_URL", "SLOTSERVE_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def call(who: str | None, *args: str, **more: Any) -> Result:
        app = App(httpx.WSGITransport(app=world.app), lambda: world.now, ZoneInfo("Asia/Shanghai"))
        env = {"SLOTSERVE_URL": "http://controller.test", **({"SLOTSERVE_API_KEY": world.keys[who]} if who else {})}
        return CliRunner().invoke(main, list(args), obj=app, env={**env, **more.pop("env", {})}, **more)

    return call
