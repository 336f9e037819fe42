"""The real controller and a real mail server: a mail after the commit, and none lost when the controller is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.store import keys, migrate, users
from controller.store.session import Store
from controller.store.tables import Channel, Node, User
from controller.times import text_of
from tests.controller.notify.conftest import Sink
from tests.parts import Child, free_port, running, start, wait_until

HOUR = 3_600_000
SERVE = [str(Path(sys.executable).parent / "slotserve"), "serve"]


def prepared(folder: Path) -> dict[str, str]:
    """A database with an administrator, a person with an address and a channel; secrets by name."""
    folder.mkdir()
    store = Store(f"sqlite:///{folder / 'slotserve.db'}")
    migrate.upgrade(store)
    now, secrets = time.time_ns() // 1_000_000, {}
    with store.write() as session:
        for name, role in (("root", "admin"), ("maya", "user")):
            user = users.create(session, name, None, role, now, email=f"{name}@example.org")
            session.get(User, user.id).zone = "Asia/Shanghai"
            secrets[name] = keys.create(session, user.id, "test", now)[1]
        session.add(Node(id="n", name="n1", created_at=now, certificate_serial="1"))
        session.flush()
        session.add(Channel(id="c", node_id="n", name="a", created_at=now, engines=["llama.cpp"]))
    store.close()
    return secrets


@contextmanager
def serving(folder: Path, smtp_port: int) -> Iterator[tuple[Child, str]]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLOTSERVE_")}
    env |= {f"SLOTSERVE_{n}_LISTEN": "127.0.0.1:0" for n in ("HTTP", "FLEET", "ENROL")}
    env |= {"SLOTSERVE_STATE_DIR": str(folder), "SLOTSERVE_PUBLIC_URL": "https://slots.example.org"}
    env |= {
        "SLOTSERVE_SMTP_HOST": "127.0.0.1",
        "SLOTSERVE_SMTP_PORT": str(smtp_port),
        "SLOTSERVE_SMTP_SECURITY": "none",
    }
    (folder / "ports.json").unlink(missing_ok=True)
    child = start(SERVE, folder / "serve.log", env)
    try:
        wait_until(lambda: (folder / "ports.json").exists() or not child.alive(), 60, "the controller serves")
        assert child.alive(), child.output()
        yield child, f"http://127.0.0.1:{json.loads((folder / 'ports.json').read_text())['http']}/api/v1"
    finally:
        child.stop()


@pytest.mark.system
def test_a_mail_after_the_commit_and_none_lost_by_a_kill(tmp_path: Path) -> None:
    folder, port = tmp_path / "state", free_port()
    secrets = prepared(folder)

    def call(url: str, who: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {secrets[who]}"}
        method = "GET" if body is None else "POST"
        answer = httpx.request(method, f"{url}{path}", json=body, headers=headers, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def cancelled(url: str, hour: int) -> None:
        now = time.time_ns() // 1_000_000
        times = {"starts_at": text_of(now + hour * HOUR), "ends_at": text_of(now + (hour + 1) * HOUR)}
        made = call(url, "maya", "/reservations", {"channel": "n1/a", "kind": "exclusive", **times})
        call(url, "root", f"/reservations/{made['id']}/cancel", {"reason": "the card is broken"})

    with serving(folder, port) as (child, url):  # nobody listens on the mail server's port
        cancelled(url, 1)
        wait_until(lambda: call(url, "root", "/notifications/delivery")["problems"], 60, "the first try has failed")
        assert "refused" in call(url, "root", "/notifications/delivery")["problems"][0]["error"]
        cancelled(url, 3)
        child.signal(signal.SIGKILL)
        child.wait()
    sink_folder = tmp_path / "smtp"
    sink_folder.mkdir()
    sink = Sink(sink_folder)
    with running([sys.executable, "-m", "tests.fakes.smtp_sink", str(sink_folder)], sink_folder / "log"):
        wait_until(lambda: (sink_folder / "port").exists(), 60, "the mail server listens")
        store = Store(f"sqlite:///{folder / 'slotserve.db'}")
        with store.write() as session:  # as if the time of the next try had come
            session.connection().exec_driver_sql("UPDATE outbox SET due_at = 0 WHERE state = 'waiting'")
        store.close()
        with serving(folder, int((sink_folder / "port").read_text())) as (_, url):
            wait_until(lambda: len(sink.mails) == 2, 60, "both mails have come")
            cancelled(url, 5)
            wait_until(lambda: len(sink.mails) == 3, 60, "a third comes at once")
            wait_until(lambda: call(url, "root", "/notifications/delivery")["waiting"] == 0, 60, "none waits")
    assert {m["To"] for m in sink.mails} == {"maya <maya@example.org>"}
    assert len({m["Message-ID"] for m in sink.mails}) == 3
    assert "the card is broken" in sink.mails[0].get_body(("plain",)).get_content()
