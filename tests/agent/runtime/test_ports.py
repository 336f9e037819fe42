"""Ports that an engine may open beside its own are looked at too."""

from __future__ import annotations

import socket

import pytest

from agent.engines import get
from agent.runtime import ports


def test_neighbours_in_use_are_kept_away_from(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        real, offered = ports._bound, iter((number - 233, number - 233, 40_123, 40_123))

        def bound(host: str, port: int) -> int | None:
            return next(offered) if port == 0 else real(host, port) if port == number else port

        monkeypatch.setattr(ports, "_bound", bound)
        assert ports.free_port(beside=get("sglang").beside) == 40_123


def test_a_port_is_told_where_there_are_no_free_neighbours_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_bound", lambda _host, port: 65_000 if port == 0 else None)
    assert ports.free_port(beside=(13,)) == 65_000
    monkeypatch.undo()
    assert 0 < ports.free_port() < 65_536
