"""What a node declares of itself when it connects: the planner is woken by what is news, not by a node that comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.fleet.records import Records
from controller.store import migrate
from controller.store.session import Store
from controller.store.tables import Channel, Node
from protos import fleet_pb2, types_pb2

MAIN = {"name": "main", "engines": ["llama.cpp"], "gpu_uuids": ["GPU-1"], "gpu_memory_bytes": 80 << 30}
SIDE = {"name": "side", "engines": ["vllm"]}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path / 'slotserve.db'}")
    migrate.upgrade(store)
    with store.write() as session:
        session.add(Node(id="n", name="n1", created_at=0, certificate_serial="1"))
    yield store
    store.close()


def hello(*channels: dict[str, Any], **more: Any) -> fleet_pb2.Hello:
    return fleet_pb2.Hello(node="n1", channels=[types_pb2.DeclaredChannel(**c) for c in channels], **more)


@pytest.mark.parametrize(
    ("then", "woken"),
    [
        (hello(MAIN, version="1"), set()),
        (hello(MAIN, version="2", gateway_urls=["http://n1:8710"]), set()),
        (hello(MAIN, SIDE, version="1"), {"main", "side"}),
        (hello({**MAIN, "gpu_uuids": ["GPU-2"]}, version="1"), {"main"}),
        (hello({**MAIN, "gpu_memory_bytes": 1}, version="1"), {"main"}),
        (hello({**MAIN, "engines": ["vllm"]}, version="1"), {"main"}),
        (hello(version="1"), {"main"}),  # no longer declared
        (hello(MAIN, version="1", own_settings={"drain_seconds": 7}), {"main"}),
    ],
)
def test_what_is_news_wakes_the_planner(store: Store, then: fleet_pb2.Hello, woken: set[str]) -> None:
    records, touched = Records(store, lambda: 1000), set()
    records.hello("n1", "1", hello(MAIN, version="1"))
    store.on_commit(touched.update)
    records.hello("n1", "1", then)
    with store.read() as session:
        assert {session.get(Channel, i).name for i in touched} == woken
        assert session.get(Node, "n").version == then.version


def test_a_channel_that_was_gone_and_is_back_wakes_it(store: Store) -> None:
    records, touched = Records(store, lambda: 1000), set()
    for said in (hello(MAIN), hello()):
        records.hello("n1", "1", said)
    store.on_commit(touched.update)
    records.hello("n1", "1", hello(MAIN))
    assert len(touched) == 1
