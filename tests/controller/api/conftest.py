"""A migrated database, people, a node with two channels, models and a preset; and Flask's client for each person."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import TestResponse

from controller.context import Context
from controller.fleet.live import Live
from controller.settings import Settings
from controller.store import keys, users
from controller.store.session import Store
from controller.store.tables import Channel, Node, NodeModel
from controller.times import text_of
from controller.web import create_app
from tests.controller.api import described
from tests.parts import migrated_sqlite

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z
MIN, HOUR, DAY = 60_000, 3_600_000, 86_400_000


class Ca:
    def certificate_pem(self) -> str:
        return "-----BEGIN CERTIFICATE-----\n"


@dataclass
class World:
    """`w.get("/me", who="maya")`; `w.now` is the controller's clock."""

    ctx: Context
    store: Store
    now: int = NOW
    secrets: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    woken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.app = create_app(self.ctx)
        self.client = self.app.test_client()

    def call(self, method: str, path: str, body: Any = None, who: str | None = "root", **more: Any) -> TestResponse:
        headers = {"Authorization": f"Bearer {self.secrets[who]}"} if who else {}
        path = path if path.startswith(("/healthz", "/readyz", "/metrics")) else f"/api/v1{path}"
        if body is not None:
            more |= {"data": json.dumps(body), "content_type": "application/json"}
        answer = self.client.open(path, method=method, headers={**headers, **more.pop("headers", {})}, **more)
        described.check(self.app, method, path, answer)
        return answer

    def good(self, method: str, path: str, body: Any = None, who: str = "root", **more: Any) -> Any:
        answer = self.call(method, path, body, who, **more)
        assert answer.status_code < 300, (method, path, answer.status_code, answer.get_data(as_text=True))
        return answer.get_json(silent=True)

    def get(self, path: str, who: str = "root") -> Any:
        return self.good("GET", path, who=who)

    def bad(self, status: int, method: str, path: str, body: Any = None, who: str | None = "root", **more: Any) -> Any:
        """The body of a refusal, checked for its shape."""
        answer = self.call(method, path, body, who, **more)
        text = answer.get_data(as_text=True)
        assert answer.status_code == status, (method, path, answer.status_code, text)
        said = answer.get_json()
        assert set(said["error"]) == {"code", "message", "details"}, text
        assert isinstance(said["error"]["message"], str)
        assert said["error"]["message"]
        assert "Traceback" not in text
        return said

    def book(self, start: int, end: int, who: str = "maya", channel: str = "n1/a", **more: Any) -> Any:
        """Books [now + start, now + end)."""
        return self.good("POST", "/reservations", self.wish(start, end, channel, **more), who)

    def wish(self, start: int, end: int, channel: str = "n1/a", **more: Any) -> dict[str, Any]:
        times = {"starts_at": text_of(self.now + start), "ends_at": text_of(self.now + end)}
        kind = more.get("kind", "model")
        return {"channel": channel, "kind": kind, **({"model": "small"} if kind == "model" else {}), **times, **more}


def make(tmp_path: Path, database_url: str = "", **settings: Any) -> World:
    if not database_url:
        shutil.copy(migrated_sqlite(), tmp_path / "slotserve.db")
    chosen = Settings(state_dir=tmp_path, database_url=database_url, **settings)
    store = Store(chosen.database)
    world: World

    def clock() -> int:
        return world.now

    ctx = Context(
        chosen,
        store,
        Live(),
        clock=clock,
        wake_commands=lambda: world.woken.append("commands"),
        keys_changed=lambda: world.woken.append("keys"),
        ca=Ca(),
        enrol_address="controller.example:8702",
    )
    world = World(ctx, store)
    with store.write() as session:
        for name, role in (("root", "admin"), ("ada", "approver"), ("maya", "user"), ("noor", "user"), ("tom", "user")):
            user = users.create(session, name, None, role, NOW)
            world.ids[name] = user.id
            world.secrets[name] = keys.create(session, user.id, "test", NOW)[1]
        session.add(Node(id="n", name="n1", created_at=NOW, certificate_serial="1", gateway_urls=["http://n1:8710"]))
        session.flush()
        for name, memory in (("a", 0), ("b", 8_000_000_000)):
            session.add(
                Channel(
                    id=name, node_id="n", name=name, created_at=NOW, engines=["llama.cpp"], gpu_memory_bytes=memory,
                    gpu_uuids=["GPU-1"] if memory else [],
                )
            )  # fmt: skip
        for name, size, where in (
            ("small", 1_000_000_000, ["a", "b"]),
            ("org/big model", 20_000_000_000, ["a", "b"]),
            ("only-b", 1_000, ["b"]),
        ):
            session.add(
                NodeModel(
                    node_id="n", name=name, path=f"/models/{name}.gguf", size_bytes=size, format="gguf", channels=where,
                    seen_at=NOW,
                )
            )  # fmt: skip
    ctx.live.update("n1", online=True, version="1")
    return world


@pytest.fixture
def w(tmp_path: Path, database_url: str) -> Iterator[World]:
    world = make(tmp_path, database_url)
    yield world
    world.store.close()
