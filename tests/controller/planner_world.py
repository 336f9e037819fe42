"""A planner over a real database, with a clock that is set by hand and a node that says what it is told to say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import event, select, update

from controller.fleet import planner_store
from controller.fleet.live import Live, LiveChannel
from controller.fleet.planner import Planner
from controller.settings import Settings
from controller.store import migrate
from controller.store.session import Store
from controller.store.tables import Channel, Load, Node, NodeModel, Preset, Reservation, User
from protos import types_pb2

START = 1_800_000_000_000  # a whole hour
GB = 1_000_000_000


class World:
    """Node "n1" with channel "main" (default D), models A, B, D; user "ann"; everything loads in 60 s."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.now = folder, START
        self.settings = Settings(state_dir=folder, **settings)
        self.store = Store(self.settings.database)
        if not self.settings.database_url:
            migrate.upgrade(self.store)
        self.live = Live()
        self.pushed: list[str] = []
        with self.store.write() as session:
            session.add(User(id="ann", name="ann", created_at=START, password_hash=None))
        self.add_node("n1", "main")
        self.planner = self.new_planner()

    def new_planner(self, push: Callable[[str], None] | None = None) -> Planner:
        """One that leads, in a term of its own."""
        planner = Planner(self.store, self.live, self.settings, lambda: self.now, push or self.pushed.append)
        planner.listen()
        planner.begin(planner_store.next_epoch(self.store, self.now))
        return planner

    def add_node(self, name: str, *channels: str, **own_settings: float) -> None:
        with self.store.write() as session:
            session.add(Node(id=name, name=name, created_at=START, own_settings=own_settings))
            session.flush()
            for model in "ABD":
                session.add(
                    NodeModel(node_id=name, name=model, path=f"/{model}", size_bytes=GB, format="gguf", seen_at=0)
                )
                session.add(
                    Load(id=f"{name}{model}", node_id=name, model=model, identity="", ok=True, seconds=60, at=0)
                )
            for channel in channels:
                id_ = f"{name}/{channel}"
                row = Channel(
                    id=id_, node_id=name, name=channel, created_at=0, engines=["simulated"], default_model="D"
                )
                session.add(row)
                session.touch(id_)

    def book(self, id_: str, start: float, end: float, model: str | None = "A", **values: Any) -> None:
        """Approved, on n1/main unless said otherwise; seconds from START."""
        row = {
            "channel_id": "n1/main",
            "kind": "model" if model else "exclusive",
            "status": "approved",
            "holder_id": "ann",
            "approved_at": self.now,
            **values,
        }
        with self.store.write() as session:
            session.add(
                Reservation(
                    id=id_,
                    model=model,
                    starts_at=START + int(start * 1000),
                    ends_at=START + int(end * 1000),
                    booked_by="ann",
                    created_at=self.now,
                    **row,
                )
            )
            session.touch(row["channel_id"])

    def preset(self, *args: str, model: str = "A", name: str = "p") -> None:
        """Makes the preset, or edits it."""
        with self.store.write() as session:
            row = session.scalars(select(Preset).where(Preset.model == model, Preset.name == name)).one_or_none()
            if row is None:
                row = Preset(
                    id=f"{model}{name}", model=model, name=name, engine="simulated", created_at=0, updated_at=0
                )
                session.add(row)
            row.args = list(args)
            session.touch(all_channels=True)

    def set(self, table: Any, id_: str, touch: bool = True, **values: Any) -> None:
        with self.store.write() as session:
            session.execute(update(table).where(table.id == id_).values(**values))
            if touch:
                session.touch("n1/main")

    def says(self, channel: LiveChannel, node: str = "n1", name: str = "main") -> None:
        self.live.update(node, online=True, channels={name: channel})

    def row(self, table: Any, id_: str) -> Any:
        with self.store.read() as session:
            return session.get(table, id_)

    def look(self, seconds: float | None = None) -> list[tuple[str, str]]:
        """One round (at START + seconds); the steps of n1/main as (model or "-", why)."""
        if seconds is not None:
            self.now = START + int(seconds * 1000)
        asyncio.run(self.planner.step())
        return self.steps()

    def plan(self, node: str = "n1") -> types_pb2.Plan:
        stamp = self.planner.plan_for(node)
        assert stamp is not None
        return types_pb2.Plan.FromString(stamp[2])

    def channel(self, node: str = "n1", name: str = "main") -> types_pb2.ChannelPlan:
        return next(c for c in self.plan(node).channels if c.channel == name)

    def steps(self) -> list[tuple[str, str]]:
        channel = self.channel()
        models = {launch.identity: launch.model for launch in channel.launches}
        return [(models.get(s.target, "-"), s.why) for s in channel.steps]

    def identity(self, index: int = 0) -> str:
        return self.channel().steps[index].target

    def generation(self, node: str = "n1") -> int:
        stamp = self.planner.plan_for(node)
        assert stamp is not None
        return stamp[1]

    def statements(self) -> list[str]:
        """Every statement from now on is added to the list."""
        seen: list[str] = []
        event.listen(self.store.engine, "before_cursor_execute", lambda *a: seen.append(a[2]))
        return seen
