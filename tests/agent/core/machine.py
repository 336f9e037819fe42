"""The core run without a task: each action at once has an outcome that a test chooses. No loop, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from agent.core import actions as a
from agent.core import step as s
from agent.core import view as v
from agent.core.types import Launch, Step
from agent.core.view import ChannelView, Running


def launch(model: str, load: float = 60.0, **more) -> Launch:
    return Launch(f"id-{model}", model, None, "simulated", load_seconds=load, **more)


def running(what: Launch, started: float = 0.0, ready: float | None = None) -> Running:
    ready_at = None if ready is None else round(ready * 1000)
    return Running(f"l-{what.model}", what.identity, what.model, None, round(started * 1000), ready_at, pid=1)


@dataclass
class Machine:
    """`outcome(action)` in words says how an action ends; by default everything works, at once."""

    view: ChannelView
    now: int = 0
    bad: dict[str, str] = field(default_factory=dict)  # action's class: "fails"
    done: list[str] = field(default_factory=list)
    between: list[ChannelView] = field(default_factory=list)  # views while an action was under way

    def enter(self, step: Step | None) -> None:
        self.view = v.enter_step(self.view, step, None, self.view.timing)

    def turn(self) -> a.Action:
        """One action, carried out."""
        action = s.next_action(self.view, self.now)
        self.done.append(type(action).__name__)
        self.apply(action)
        return action

    def settle(self, most: int = 60) -> Iterator[ChannelView]:
        """Every view on the way until it waits with nothing left to come."""
        for _ in range(most):
            yield self.view
            action = self.turn()
            if isinstance(action, a.Wait):
                if self.view.phase in ("ready", "off", "retry_wait"):
                    return
                assert action.until is not None, f"waits for nothing in {self.view.phase}: {action.why}"
                self.now = max(self.now, action.until)
        raise AssertionError(f"never settles: {self.done}")

    def run(self) -> Machine:
        for _ in self.settle():
            pass
        return self

    def run_until(self, target: Launch | None) -> str | None:
        """Runs, over retries as well, until the target does; what runs then."""
        for _ in range(5):
            self.run()
            found = self.view.process.identity if self.view.process else None
            action = s.next_action(self.view, self.now)
            if found == (target.identity if target else None) or not isinstance(action, a.Wait) or not action.until:
                return found
            self.now = action.until
        return found

    def apply(self, action: a.Action) -> None:
        view, now, fails = self.view, self.now, self.bad.get(type(action).__name__) == "fails"
        match action:
            case a.CloseAndDrain(drain=drain):
                view = v.draining(view, drain, now)
                self.between.append(view)
                view = v.in_flight(view, 1 if fails else 0)
            case a.CallOffDrain():
                view = v.called_off(view, now)
            case a.Stop():
                view = v.stopping(view, now)
                self.between.append(view)
                view = v.stuck(view, "stuck", now) if fails else v.gone(view, now)
            case a.GiveUp(launch=target):
                view, _, _ = v.record_failure(view, target, "load_timeout", "too slow", "", now)
                view = v.ended(view, action.why, now)
            case a.Prepare():
                view = v.preparing(view, now)
            case a.Free():
                view = v.freed(view, "", "somebody" if fails else "", now)
            case a.Look():
                view = v.held_by_others(view, "somebody", now) if fails else v.preparing(view, now)
            case a.Preflight(launch=target):
                if fails or target.model in self.bad:
                    view, _, _ = v.record_failure(view, target, "missing_file", "it is not there", "", now)
                else:
                    view = v.checked(view, target)
            case a.Start(launch=target):
                assert view.process is None, "started beside what runs"
                assert view.freed, "started without memory having been looked at"
                view = v.starting(view, target, now)
                self.between.append(view)
                if fails:
                    view, _, _ = v.record_failure(view, target, "bad_argument", "no", "", now)
                    view = v.not_started(view, now)
                else:
                    view = v.started(view, running(target, now / 1000), now)
            case a.Probe():
                view = replace(view, again_at=now + 100) if fails else v.ready(view, now)
            case a.Rest(waits=waits):
                view = v.resting(view, waits, now)
        self.view = view


def views_on_the_way(
    start: ChannelView, step: Step | None, bads: Iterable[dict[str, str]] = ({},)
) -> list[ChannelView]:
    """All views that a channel passes through on its way to what `step` says."""
    found: list[ChannelView] = []
    for bad in bads:
        machine = Machine(start, bad=dict(bad))
        machine.enter(step)
        try:
            found += list(machine.settle(25))
        except AssertionError:  # a fault that never ends: the views on the way are what is wanted
            found.append(machine.view)
        found += machine.between
    return found
