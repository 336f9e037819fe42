"""A real controller on SQLite with something of everything in it, for schemathesis to knock on.

A node that is away with three channels, another that may be removed, models, presets, people of each role, keys, bookings
in every state, watches, feeds, targets. Their names are those of the document's examples, which so lead to something.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from controller.store import keys, migrate, users
from controller.store.session import Store
from controller.store.tables import Channel, Node, NodeModel
from controller.times import text_of
from tests.parts import Child, start, wait_until

SERVE = [str(Path(sys.executable).parent / "slotserve"), "serve"]
HOUR = 3_600_000
PEOPLE = (("root", "admin"), ("ada", "approver"), ("maya", "user"), ("noor", "user"))


def prepared(folder: Path) -> dict[str, str]:
    """A filled database; API keys by name."""
    folder.mkdir(parents=True)
    store = Store(f"sqlite:///{folder / 'slotserve.db'}")
    migrate.upgrade(store)
    now, secrets = time.time_ns() // 1_000_000, {}
    with store.write() as session:
        for name, role in PEOPLE:
            user = users.create(session, name, None, role, now)
            secrets[name] = keys.create(session, user.id, "schemathesis", now)[1]
        session.add(
            Node(id="n", name="gpu1", created_at=now, certificate_serial="1", gateway_urls=["http://gpu1:8710"])
        )
        session.add(Node(id="m", name="gpu2", created_at=now))
        session.flush()
        for name in ("a", "b", "c"):
            session.add(
                Channel(
                    id=name, node_id="n", name=name, created_at=now, engines=["llama.cpp"], gpu_uuids=["GPU-5e1f"],
                    gpu_memory_bytes=80_000_000_000,
                )
            )  # fmt: skip
        for model in ("org/model", "small"):
            session.add(
                NodeModel(
                    node_id="n", name=model, path=f"/models/{model}.gguf", size_bytes=1_000_000_000, format="gguf",
                    channels=["a", "b", "c"], seen_at=now,
                )
            )  # fmt: skip
    store.close()
    return secrets


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Child, str]]:
    """`slotserve serve` on that database; its address with /api/v1."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLOTSERVE_")}
    env |= {f"SLOTSERVE_{n}_LISTEN": "127.0.0.1:0" for n in ("HTTP", "FLEET", "ENROL")}
    env |= {"SLOTSERVE_STATE_DIR": str(folder), "SLOTSERVE_LOG_LEVEL": "warning"}
    child = start(SERVE, folder / "serve.log", env)
    try:
        ports = folder / "ports.json"
        wait_until(lambda: ports.exists() or not child.alive(), 120, "the controller serves")
        assert child.alive(), child.output()
        yield child, f"http://127.0.0.1:{json.loads(ports.read_text())['http']}/api/v1"
    finally:
        child.stop()


def fill(url: str, secrets: dict[str, str]) -> None:
    """What people would have made, through the API itself."""
    now = time.time_ns() // 1_000_000

    def call(who: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {secrets[who]}"}
        answer = httpx.request(method, f"{url}{path}", json=body, headers=headers, timeout=60, trust_env=False)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    def book(channel: str, start: int, end: int, **more: Any) -> str:
        wish = {"channel": f"gpu1/{channel}", "model": "org/model", **more}
        times = {"starts_at": text_of(now + start * HOUR), "ends_at": text_of(now + end * HOUR)}
        return str(call("maya", "POST", "/reservations", {**wish, **times})["id"])

    call("root", "PATCH", "/channels/gpu1/b", {"policy": {"approval": "always"}})
    call("root", "PATCH", "/channels/gpu1/c", {"default_model": "small"})
    call(
        "maya", "POST", "/presets", {"model": "org/model", "name": "8k", "engine": "llama.cpp", "args": ["-c", "8192"]}
    )
    book("a", 0, 2, preset="8k")
    book("a", 5, 6, kind="exclusive", model=None)
    call("maya", "POST", f"/reservations/{book('a', 8, 9)}/cancel", {})
    book("b", 1, 2)
    call("ada", "POST", f"/reservations/{book('b', 3, 4)}/approve", {})
    call("ada", "POST", f"/reservations/{book('b', 5, 6)}/reject", {"reason": "too long"})
    book("c", 24, 25, repeat={"every": "day", "count": 3, "zone": "Europe/Berlin"})
    for who in ("root", "maya"):
        call(who, "POST", "/keys", {"name": "spare"})
        call(who, "POST", "/feeds", {"name": "calendar", "channel": "gpu1/a"})
    body = {"kind": "exclusive", "channel": "gpu1/a", "minutes": 60}
    call("maya", "POST", "/watches", {**body, "not_after": text_of(now + 2 * HOUR)})
