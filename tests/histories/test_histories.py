"""Random histories of people and faults: what people were promised holds at every instant that is looked at."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from agent.core import actions as a
from agent.core import step as s
from controller.store.tables import Channel as ChannelRow
from tests.histories.fleet import LOADS, SECOND, Fleet

MODELS = st.sampled_from(("A", "B", "D", None))
CLOCKS = st.sampled_from((-7200, -3600, -1800, -61, 61, 1800, 3600, 7200)) | st.integers(-10_000, 10_000)
SPANS = st.sampled_from((1, 30, 59, 60, 61, 90, 179, 180, 181, 240, 360, 361, 600, 1200)) | st.integers(1, 4000)


class Histories(RuleBasedStateMachine):
    """One channel "main" of node n1; default D."""

    def __init__(self) -> None:
        super().__init__()
        shm = Path("/dev/shm")  # a database that lives for a second need not reach a disk
        self.folder = Path(tempfile.mkdtemp(prefix="histories-", dir=shm if os.access(shm, os.W_OK) else None))

    @initialize()
    def begin(self) -> None:
        self.fleet = Fleet(self.folder)
        self.last_epoch = 0
        self.promised = True  # no clock was set, no database restored: what was booked in time is loaded in time
        self.faults = False  # an engine has failed, or requests kept a drain waiting: loading in time is not promised

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            self.fleet.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- people -----------------------------------------------------------------------------------------------------

    def _can(self) -> bool:
        return self.fleet.up

    @rule(
        start=st.just(0) | SPANS,
        length=SPANS,
        model=MODELS,
        status=st.sampled_from(("approved", "approved", "pending")),
    )
    def book(self, start: int, length: int, model: str | None, status: str) -> None:
        if self.fleet.up:
            self.fleet.book(start, length, model, status)

    @rule(gap=st.sampled_from((0, 0, 1, 60, 239, 240)), length=SPANS, model=MODELS)
    def book_after_the_last(self, gap: int, length: int, model: str | None) -> None:
        fleet = self.fleet
        rows = fleet.rows("pending", "approved")
        if fleet.up and rows:
            fleet.book(max(0, (rows[-1].ends_at - fleet.now) // SECOND + gap), length, model)

    @rule(which=st.integers(0, 5))
    def approve(self, which: int) -> None:
        waiting = [r for r in self.fleet.rows("pending") if r.ends_at > self.fleet.now]
        if self.fleet.up and waiting:
            self.fleet.set(waiting[which % len(waiting)], status="approved", approved_at=self.fleet.now)

    @rule(which=st.integers(0, 5))
    def end_or_cancel(self, which: int) -> None:
        rows, now = self.fleet.rows("approved"), self.fleet.now
        if self.fleet.up and rows:
            row = rows[which % len(rows)]
            if row.ends_at > now:
                status = "ended_early" if row.starts_at <= now else "cancelled"
                self.fleet.set(row, status=status, ended_at=now)

    @rule(which=st.integers(0, 5), more=st.sampled_from((30, 600)))
    def extend(self, which: int, more: int) -> None:
        rows = self.fleet.rows("pending", "approved")
        if self.fleet.up and rows:
            row = rows[which % len(rows)]
            end = row.ends_at + more * SECOND
            free = not any(r.starts_at < end and row.ends_at < r.ends_at for r in rows if r.id != row.id)
            if free and row.ends_at > self.fleet.now:
                self.fleet.set(row, ends_at=end)

    @rule(model=MODELS, lasts=st.none() | SPANS)
    def override(self, model: str | None, lasts: int | None) -> None:
        if self.fleet.up:
            until = None if lasts is None else self.fleet.now + lasts * SECOND
            self._channel(override_set_at=self.fleet.now, override_model=model, override_until=until)

    @rule()
    def clear_override(self) -> None:
        if self.fleet.up:
            self._channel(override_set_at=None, override_model=None, override_until=None)

    @rule(model=MODELS)
    def default(self, model: str | None) -> None:
        if self.fleet.up:
            self._channel(default_model=model)

    def _channel(self, **values: object) -> None:
        self.fleet.world.set(ChannelRow, "n1/main", **values)
        self.fleet.changed()

    # --- faults -----------------------------------------------------------------------------------------------------

    @rule(link=st.booleans())
    def cut_or_mend(self, link: bool) -> None:
        self.fleet.link, self.fleet.deaf = link, False
        self.fleet.sync()

    @rule()
    def line_goes_half_open(self) -> None:
        """Until the controller notices (by the next cut or mend) it believes in a node that hears nothing."""
        self.fleet.deaf = self.fleet.link

    @rule()
    def controller_dies(self) -> None:
        self.fleet.up = False

    @rule()
    def controller_starts(self) -> None:
        self.fleet.restart_controller()

    @rule()
    def deposed_controller_speaks(self) -> None:
        """What an earlier process still had to say is refused."""
        old, held = getattr(self.fleet, "old_stamp", None), self.fleet.down.held
        if old is not None and held is not None and old[0] < held.epoch:
            before = self.fleet.carries.plan
            answer = self.fleet.push(old)
            assert answer is not None
            assert not answer.accepted
            assert "is lower than" in answer.reason
            assert self.fleet.carries.plan is before

    @rule()
    def agent_restarts(self) -> None:
        self.fleet.restart_agent()

    @rule(seconds=CLOCKS)
    def controllers_clock_is_set(self, seconds: int) -> None:
        self.promised = False
        self.fleet.set_clock(seconds)

    @rule(seconds=CLOCKS)
    def nodes_clock_is_set(self, seconds: int) -> None:
        """Which changes nothing."""
        self.fleet.wall += seconds * SECOND
        self.fleet.sync()

    @rule()
    def database_is_backed_up(self) -> None:
        self.fleet.back_up()

    @rule()
    def database_of_then_is_restored(self) -> None:
        """Bookings are those of the backup; the node has followed higher epochs, and obeys all the same."""
        self.promised = False
        self.fleet.restore()

    @rule()
    def engine_crashes(self) -> None:
        self.faults = True
        self.fleet.channel.crash()
        self.fleet.sync()

    @rule(model=st.sampled_from("ABD"))
    def model_breaks(self, model: str) -> None:
        self.faults = True
        self.fleet.channel.broken ^= {model}

    @rule(seconds=st.integers(1, 60))
    def requests_run(self, seconds: int) -> None:
        if self.fleet.channel.view.phase == "ready":
            self.faults = True
            self.fleet.channel.requests_until = self.fleet.now + seconds * SECOND

    @rule(seconds=st.sampled_from((1, 10, 60, 180, 400, 3600)) | st.integers(1, 8000))
    def time_passes(self, seconds: int) -> None:
        self.fleet.advance(seconds)

    # --- what holds -------------------------------------------------------------------------------------------------

    @invariant()
    def the_node_does_what_was_decided(self) -> None:
        """Also while it is cut off, as long as nothing has changed that it could not hear of."""
        fleet = self.fleet
        if not fleet.up or fleet.unheard or self.faults or fleet.step is None:
            return
        decision, step = fleet.decision(), fleet.step
        wanted = decision.target.model if decision.target else None
        assert (step.target.model if step.target else None) == wanted, fleet.carries.plan
        assert step.why == decision.why

    @invariant()
    def who_may_call_is_who_has_booked(self) -> None:
        fleet = self.fleet
        if fleet.unheard:
            return
        running = [
            r for r in fleet.rows("approved", "finished") if max(r.starts_at, r.approved_at) <= fleet.now < r.ends_at
        ]
        access = fleet.access
        assert (access.reservation_id if access else None) == (running[0].id if running else None)
        if running and fleet.step is not None:
            target = fleet.step.target
            assert (target.model if target else None) == running[0].model

    @invariant()
    def the_model_is_loaded_before_the_start(self) -> None:
        """What was booked early enough, on a channel that nothing disturbed, is ready at its first instant."""
        fleet = self.fleet
        if fleet.unheard or self.faults or not self.promised:
            return
        view = fleet.channel.view
        for row in fleet.rows("approved"):
            started = fleet.now - row.starts_at
            early = row.starts_at - max(row.created_at, row.approved_at)
            lead = max(LOADS.get(row.model or "", 0) + 60, 180) if row.model else 90
            before = [r for r in fleet.rows("approved", "finished", "ended_early") if r.ends_at <= row.starts_at]
            gap = min((row.starts_at - (r.ended_at or r.ends_at) for r in before), default=lead * SECOND)
            if 0 <= started < (row.ends_at - row.starts_at) and early >= lead * SECOND <= gap and row.version == 1:
                model = view.process.model if view.process else None
                assert (model, view.phase) == ((row.model, "ready") if row.model else (None, "off"))

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        """Where the channel waits for nothing, it runs what it should, or nothing where nothing should run."""
        channel = self.fleet.channel
        action = s.next_action(channel.view, channel.now)
        assert isinstance(action, a.Wait | a.Rest), action
        if isinstance(action, a.Wait) and action.until is None:
            wanted = channel.view.step.target if channel.view.step else None
            has = channel.view.process.identity if channel.view.process else None
            assert has == (wanted.identity if wanted else None), (action, channel.view)

    @invariant()
    def epochs_only_grow(self) -> None:
        held = self.fleet.down.held
        epoch = held.epoch if held else 0
        assert epoch >= self.last_epoch
        self.last_epoch = epoch

    @invariant()
    def what_is_over_is_written_down(self) -> None:
        if self.fleet.up:
            assert not [r for r in self.fleet.rows("pending", "approved") if r.ends_at <= self.fleet.now]


def run(histories: int, steps: int = 30) -> None:
    """So many random histories; a failure prints the shortest one that shows it."""
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


@pytest.mark.slow
def test_random_histories_of_people_and_faults() -> None:
    run(40, steps=20)


def test_cut_off_over_a_start_and_an_end(tmp_path: Path) -> None:
    """The timetable is kept without anybody, and what was booked meanwhile comes with the next plan."""
    fleet = Fleet(tmp_path)
    fleet.advance(100)
    fleet.book(600, 1200, "A")
    fleet.link = False
    fleet.advance(420)
    assert fleet.channel.view.process is not None
    assert fleet.channel.view.process.model == "A"
    fleet.book(1500, 600, "B")
    fleet.advance(1500)
    assert fleet.access is None
    assert [m for _, m in fleet.channel.starts] == ["D", "A", "D"]
    fleet.link = True
    fleet.sync()
    assert fleet.access is not None
    assert fleet.access.reservation_id == "r2"
    fleet.close()


def test_a_database_of_then_with_the_epoch_of_now(tmp_path: Path) -> None:
    """It was kept one start before the last: the epoch that the restored one takes is the node's very own, and the
    generations below it differ."""
    fleet = Fleet(tmp_path)
    fleet.book(60, 600, "A")
    fleet.back_up()
    fleet.restart_controller()
    for number in range(3):  # the node follows several generations of this epoch
        fleet.book(1000 + number * 100, 50, "B")
    followed = fleet.down.held
    fleet.restore()
    fleet.book(700, 60, "B")
    assert fleet.down.held is not None
    assert followed is not None
    assert fleet.down.held.epoch > followed.epoch
    assert not fleet.unheard
    fleet.advance(100)
    assert [a.reservation_id for a in [fleet.access] if a] == ["r1"]
    fleet.close()
