"""The lease against a real database: one leads at a time, a dead one is followed in time, a deposed one writes nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from controller.fleet import planner_store
from controller.fleet.lease import Lease, lasts_until
from controller.fleet.planner_store import Deposed, NodeWrite
from controller.store import migrate
from controller.store.session import Store
from tests.parts import until
from tests.postgres import PostgreSQL

LENGTH = 0.9


class Term:
    """What leading means: the epochs of its terms, and whether one is on."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.why: list[str] = []
        self.leads = asyncio.Event()

    async def gained(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.leads.set()

    async def lost(self, why: str) -> None:
        self.why.append(why)
        self.leads.clear()


@pytest.fixture
def url(postgresql: PostgreSQL) -> Iterator[str]:
    with postgresql.database() as it:
        yield it


def lease_on(store: Store, name: str, length: float = LENGTH) -> Lease:
    return Lease(store, length, lambda: f"{name}:8701", lambda: 0)


def test_who_is_unfit_follows_until_it_is_not(url: str) -> None:
    async def story() -> None:
        store, term, why = Store(url), Term(), ["ca/ca.crt differs"]
        lease = Lease(store, LENGTH, lambda: "a:8701", lambda: 0, unfit=lambda: why[0])
        runs = asyncio.create_task(lease.run(term))
        await lease.looked.wait()
        assert not lease.holds()
        assert term.epochs == []
        why[0] = ""
        async with asyncio.timeout(20):
            await term.leads.wait()
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)
        store.close()

    asyncio.run(story())


def test_one_leads_and_a_planned_end_hands_over_at_once(url: str) -> None:
    async def story() -> None:
        stores = Store(url), Store(url)
        first, second = lease_on(stores[0], "a", 30), lease_on(stores[1], "b", 30)
        terms = Term(), Term()
        runs = asyncio.create_task(first.run(terms[0]))
        await terms[0].leads.wait()
        other = asyncio.create_task(second.run(terms[1]))
        await second.looked.wait()
        assert first.holds()
        assert not second.holds()
        assert second.leader_address == "a:8701"
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)
        assert not first.holds()
        async with asyncio.timeout(20):  # far below the length of the lease
            await terms[1].leads.wait()
        assert second.leader_address == "b:8701"
        assert terms[1].epochs[0] == terms[0].epochs[0] + 1
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        for store in stores:
            store.close()

    asyncio.run(story())


def test_what_waits_for_the_store_does_not_cost_the_lease(url: str) -> None:
    """A thousand agents that dial at once fill every worker thread of the loop, and its queue."""

    async def story() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        store, term, free = Store(url), Term(), threading.Event()
        lease = lease_on(store, "a")
        runs = asyncio.create_task(lease.run(term))
        await term.leads.wait()
        waits = asyncio.create_task(asyncio.to_thread(free.wait))
        until_first = lease._until
        await until(lambda: lease._until > until_first + LENGTH or term.why, 20, "renewed some times")
        assert term.why == []
        assert not waits.done()
        free.set()
        await waits
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)
        store.close()

    asyncio.run(story())


def test_a_dead_leader_is_followed_after_the_length(url: str) -> None:
    async def story() -> None:
        store = Store(url)
        first, second = lease_on(store, "a"), lease_on(store, "b")
        assert first._take() == 1  # and is never heard of again
        term = Term()
        runs = asyncio.create_task(second.run(term))
        async with asyncio.timeout(20):
            await term.leads.wait()
        assert term.epochs == [2]
        assert not first.holds()
        assert not first._renew()
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)
        store.close()

    asyncio.run(story())


def test_without_the_database_it_stops_leading_by_itself_and_comes_back_with_a_new_epoch(url: str) -> None:
    async def story() -> None:
        store, other = Store(url), Store(url)
        lease, term = lease_on(store, "a"), Term()
        runs = asyncio.create_task(lease.run(term))
        await until(lease.holds, what="leads")
        with other.engine.begin() as connection:  # whoever holds the row keeps it from being renewed
            connection.execute(text("SELECT 1 FROM leader WHERE id = 1 FOR UPDATE"))
            await until(lambda: bool(term.why), what="gave up")
            assert not lease.holds()
            assert "database" in term.why[0]
        await until(lease.holds, what="leads again")
        assert term.epochs == [1, 2]
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)
        store.close()
        other.close()

    asyncio.run(story())


def test_a_deposed_leader_writes_no_plan(url: str) -> None:
    store = Store(url)
    write = [NodeWrite("nobody", (1, "00"))]
    epoch = planner_store.next_epoch(store, 0)
    assert planner_store.apply(store, write, epoch) == set()
    before = store.revision()
    planner_store.next_epoch(store, 0)
    with pytest.raises(Deposed, match=f"epoch {epoch + 1} is in force"):
        planner_store.apply(store, write, epoch)
    assert store.revision() == before + 1  # the new epoch's own
    store.close()


def test_on_sqlite_each_start_has_a_higher_epoch(tmp_path: Path) -> None:
    async def story() -> list[int]:
        store = Store(f"sqlite:///{tmp_path / 'a.db'}")
        migrate.upgrade(store)
        term = Term()
        for _ in range(2):
            lease = lease_on(store, "a")
            runs = asyncio.create_task(lease.run(term))
            await lease.looked.wait()
            assert lease.holds()
            runs.cancel()
            await asyncio.gather(runs, return_exceptions=True)
            assert not lease.holds()
        store.close()
        return term.epochs

    assert asyncio.run(story()) == [1, 2]


def test_another_may_take_it_only_after_the_first_has_given_up() -> None:
    asked, length = 100.0, 15.0
    assert lasts_until(asked, length) == 110.0 < asked + length


def test_a_database_older_than_its_nodes_is_outgrown(url: str) -> None:
    """A node holds plans of an epoch that the database has not come to: it was restored from a backup."""

    async def story() -> None:
        stores = Store(url), Store(url)
        first, other = lease_on(stores[0], "a"), lease_on(stores[1], "b", 60)
        term = Term()
        runs = asyncio.create_task(first.run(term))
        await term.leads.wait()
        epoch = term.epochs[0]
        assert not await asyncio.to_thread(other.outgrow, epoch + 70)  # does not lead
        assert await asyncio.to_thread(first.outgrow, epoch + 50)
        assert not first.holds()  # at once: what was decided under the old epoch is not written
        await until(lambda: len(term.epochs) == 2, what="leads again")
        assert term.epochs == [epoch, epoch + 51]
        assert len(term.why) == 1
        assert first.epoch == epoch + 51
        assert not await asyncio.to_thread(first.outgrow, epoch + 50)  # is beyond it already
        assert first.holds()
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)
        for store in stores:
            store.close()

    asyncio.run(story())
