"""A world of people and channels (as the REST tests have it), with a sender, rounds, and real receivers of messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from controller import vault
from controller.notify.rounds import Rounds
from controller.notify.sender import Sender
from controller.store.tables import Notification, Outbox, User
from tests.controller.api.conftest import World, make
from tests.parts import running, wait_until


class Sink:
    """A receiver's process; what it got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0

    def _lines(self, name: str) -> list[dict[str, Any]]:
        file = self.folder / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self._lines("requests.jsonl")

    @property
    def mails(self) -> list[EmailMessage]:
        """As a mail program reads them; `envelopes` has whom they were for."""
        return [message_from_bytes(m["data"].encode(), policy=default) for m in self.envelopes]  # type: ignore[misc]

    @property
    def envelopes(self) -> list[dict[str, Any]]:
        return self._lines("mails.jsonl")

    def behave(self, how: str) -> None:
        (self.folder / "behave").write_text(how)


@pytest.fixture
def smtp(tmp_path: Path) -> Iterator[Sink]:
    yield from started(tmp_path / "smtp", "tests.fakes.smtp_sink")


@pytest.fixture
def http(tmp_path: Path) -> Iterator[Sink]:
    yield from started(tmp_path / "http", "tests.fakes.http_sink")


def started(folder: Path, module: str, *args: str) -> Iterator[Sink]:
    """The sink as a process of its own, until the test ends."""
    folder.mkdir(exist_ok=True)
    sink = Sink(folder)
    with running([sys.executable, "-m", module, str(folder), *args], folder / "log") as child:
        wait_until(lambda: (folder / "port").exists() or not child.alive(), 60, "the sink listens")
        assert child.alive(), child.output()
        sink.port = int((folder / "port").read_text())
        yield sink


Make = Callable[..., World]


@pytest.fixture
def making(tmp_path: Path, database_url: str) -> Iterator[Make]:
    """`making(smtp_host=…)`: the world with these settings."""
    made: list[World] = []

    def world(**settings: Any) -> World:
        made.append(make(tmp_path, database_url, **settings))
        return made[-1]

    yield world
    for w in made:
        w.store.close()


def mailing(making: Make, smtp: Sink, **settings: Any) -> World:
    """With a mail server, and an address for everybody."""
    chosen = {"smtp_host": "127.0.0.1", "smtp_port": smtp.port, "smtp_security": "none"}
    chosen |= {"smtp_from": "SlotServe <slots@example.org>", "public_url": "https://slots.example.org/"}
    w = making(**{**chosen, **settings})
    for name in w.ids:
        person(w, name, email=f"{name}@example.org")
    return w


def person(w: World, who: str, /, **values: Any) -> None:
    with w.store.write() as session:
        user = session.get(User, w.ids[who])
        for field, value in values.items():
            setattr(user, field, value)


def sender(w: World, **more: Any) -> Sender:
    return Sender(w.store, w.ctx.settings, w.ctx.clock, vault.of(w.ctx), **more)


def rounds(w: World) -> Rounds:
    return Rounds(w.ctx)


def told(w: World, kind: str = "") -> list[tuple[str, str]]:
    """(who, kind) of every notice."""
    names = {i: n for n, i in w.ids.items()}
    with w.store.read() as session:
        rows = session.scalars(select(Notification).order_by(Notification.id)).all()
    return [(names[r.user_id], r.kind) for r in rows if not kind or r.kind == kind]


def outside(w: World) -> list[Outbox]:
    with w.store.read() as session:
        return list(session.scalars(select(Outbox).order_by(Outbox.id)))


def states(w: World) -> list[tuple[str, str, str]]:
    return [(m.way, m.kind, m.state) for m in outside(w)]
