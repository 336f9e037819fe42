"""The route table: what the agent says of the channels, read once into what admission and routing take.

Immutable but for the local closing of a channel by a barrier, which holds until the next table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from agent.core.admission import ChannelView, FailureView, Target
from agent.core.types import Access, Launch, Step


class TableError(ValueError):
    """A table that cannot be used; the message names the field."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how the engine that serves a channel is reached, and the heads' parts that never change meanwhile."""

    socket: str | None
    host: str
    port: int
    model: str  # what `model` must say upstream
    request_head: bytes  # headers that every request to it gets
    upgrade_head: bytes  # the same for a WebSocket
    answer_head: bytes  # headers that every answer from it gets


@dataclass(slots=True)
class Table:
    """`views` by channel name; `endpoints` of those that serve; `linger` seconds of a gateway that is replaced;
    `limits`: by channel, of requests at once (see limits.py)."""

    version: int = 0
    views: dict[str, ChannelView] = field(default_factory=dict)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    order: tuple[ChannelView, ...] = ()
    linger: float | None = None
    limits: dict[str, tuple[int, int]] = field(default_factory=dict)

    def close(self, channel: str) -> None:
        """Lets nothing new in, until the next table says otherwise."""
        view = self.views.get(channel)
        if view is not None and view.open:
            self.views[channel] = replace(view, open=False)
            self.order = tuple(self.views.values())


def read(message: Mapping[str, Any]) -> Table:
    """A `table` message. Raises TableError where a field is missing or of the wrong kind."""
    try:
        settings = message.get("settings") or {}
        views: dict[str, ChannelView] = {}
        endpoints: dict[str, Endpoint] = {}
        for entry in message["channels"]:
            name = str(entry["name"])
            views[name] = _view(entry, settings)
            if entry.get("serving") is not None:
                endpoints[name] = _endpoint(name, entry["serving"])
        linger = settings.get("gateway_linger_seconds")
        return Table(
            int(message.get("version", 0)),
            views,
            endpoints,
            tuple(views.values()),
            None if linger is None else float(linger),
            {str(c): (int(all_), int(key)) for c, (all_, key) in (settings.get("limits") or {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise TableError(f"route table: {type(err).__name__}: {err}") from err


def _view(entry: Mapping[str, Any], settings: Mapping[str, Any]) -> ChannelView:
    loading = entry.get("loading")
    switching = entry.get("switching")
    failure = entry.get("failure")
    return ChannelView(
        name=str(entry["name"]),
        open=bool(entry.get("open", True)),
        phase=str(entry.get("phase", "off")),
        serving=_target(entry.get("serving")),
        loading=_target(loading),
        loading_ready_at=loading.get("ready_at_ms") if loading else None,
        fallback=bool(entry.get("fallback", False)),
        switching_to=str(switching.get("identity") or "") if switching else None,
        switching_ready_at=switching.get("ready_at_ms") if switching else None,
        failure=FailureView(
            str(failure.get("reason", "")), str(failure.get("category", "")), failure.get("retry_at_ms") or None
        )
        if failure
        else None,
        blocked=entry.get("blocked"),
        steps=tuple(_step(s) for s in entry.get("steps", ())),
        show_holders=str(settings.get("show_holders") or "users"),
        drain=float(settings.get("drain_seconds", 30.0)),
        stop=float(settings.get("stop_timeout_seconds", 30.0)),
    )


def _target(row: Mapping[str, Any] | None) -> Target | None:
    return Target(str(row["identity"]), str(row["model"]), row.get("preset")) if row else None


def _launch(row: Mapping[str, Any] | None) -> Launch | None:
    if not row:
        return None
    load = float(row.get("load_seconds") or 0.0)
    return Launch(str(row["identity"]), str(row["model"]), row.get("preset"), "", load_seconds=load)


def _step(row: Mapping[str, Any]) -> Step:
    access = row.get("access")
    return Step(
        at=int(row["at"]),
        target=_launch(row.get("target")),
        why=str(row.get("why", "")),
        fallback=_launch(row.get("fallback")),
        reservation_id=str(row.get("reservation_id") or ""),
        access=Access(
            reservation_id=str(access.get("reservation_id") or ""),
            kind=access["kind"],
            holder_id=str(access["holder_id"]),
            participant_ids=frozenset(str(p) for p in access.get("participant_ids") or ()),
            holder_name=str(access.get("holder_name") or ""),
            start=int(access["start"]),
            end=int(access["end"]),
        )
        if access
        else None,
        prepares_for=row.get("prepares_for"),
    )


def _endpoint(channel: str, row: Mapping[str, Any]) -> Endpoint:
    model = str(row["model"])
    key = str(row.get("engine_key") or "")
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    host = f"Host: {channel}.slotserve\r\n"
    return Endpoint(
        socket=row.get("socket") or None,
        host=str(row.get("host") or "127.0.0.1"),
        port=int(row.get("port") or 0),
        model=str(row.get("served_name") or model),
        request_head=f"{host}Connection: close\r\n{authorization}".encode(),
        upgrade_head=f"{host}Connection: Upgrade\r\nUpgrade: websocket\r\n{authorization}".encode(),
        answer_head=f"X-SlotServe-Channel: {channel}\r\nX-SlotServe-Model: {header_text(model)}\r\n".encode(),
    )


def header_text(text: str) -> str:
    """Text that may stand in a header: what is not printable ASCII is percent-encoded."""
    return text if text.isascii() and text.isprintable() else quote(text, safe=" /:;,.-_()[]{}@=+*'!~")
