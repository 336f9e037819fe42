"""Why a channel does what it does, and its plan of the next day with who may call when: in sentences for one viewer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from markupsafe import Markup

from controller.console import sentences, show
from controller.context import Context
from controller.fleet.live import LiveChannel
from controller.fleet.snapshot import ChannelState
from controller.rights import Actor, HolderName, may
from controller.scheduling.plan import HOUR, timetable
from controller.scheduling.types import Decision, PlanStep
from controller.store.tables import Channel, Reservation


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the plan. `who` is a list of names, or a word of `_who` in the template."""

    at: int
    target: Any
    is_default: bool
    why: Markup
    who: str
    names: tuple[str, ...] = ()
    fallback: Any = None


class Reader:
    """Makes sentences for one viewer."""

    def __init__(
        self,
        ctx: Context,
        actor: Actor,
        now: int,
        zone: tzinfo,
        names: dict[str, str],
        said: LiveChannel,
        channel: Channel,
    ) -> None:
        self._ctx, self._actor, self._now, self._zone = ctx, actor, now, zone
        self._names, self._said, self._channel = names, said, channel

    def now(self, decision: Decision, seen: LiveChannel, since: int) -> Markup:
        viewer = self._viewer(decision.reservation)
        if self._said.phase == "gone":
            return sentences.gone()
        if self._said.phase == "unknown":
            return sentences.last_seen(seen, since, viewer.clock)
        if self._said.fallback and decision.target is not None:
            return sentences.fallback(decision.reservation, decision.target.model, viewer)
        return self._why(decision, waits=self._said.phase != "ready")

    def plan(self, state: ChannelState, running: Reservation | None) -> list[Step]:
        steps = [s for s in timetable(state.input, self._now) if s.at <= self._now + 24 * HOUR]
        return [self._step(step, running if index == 0 else None) for index, step in enumerate(steps)]

    def _step(self, step: PlanStep, running: Reservation | None) -> Step:
        target = step.target
        default = (self._channel.default_model, self._channel.default_preset)
        who, names = self._who(step, running)
        return Step(
            step.at,
            target,
            target is not None and (target.model, target.preset) == default,
            self._why(Decision(target, step.why, step.fallback, step.reservation), waits=False),
            who,
            names,
            step.fallback,
        )

    def _who(self, step: PlanStep, running: Reservation | None) -> tuple[str, tuple[str, ...]]:
        """Who may call in a step, as far as the viewer may know."""
        if step.running is None:
            if step.target is None:
                return "nobody", ()
            return ("once_ready" if step.why in ("preload", "short_gap") else "everybody"), ()
        if step.running.kind == "exclusive":
            return "nobody", ()
        if step.running.holder_id == self._actor.id:
            return "you", ()
        if not self._viewer(step.running).names_shown or not step.running.holder_name:
            return "holder", ()
        names = [step.running.holder_name]
        if running is not None and may(self._actor, "reservation.details", running):
            names += [self._names[p] for p in running.participants if p in self._names]
        return "names", tuple(names)

    def _why(self, decision: Decision, waits: bool) -> Markup:
        by = self._names.get(self._channel.override_by or "") if self._override_named() else None
        near = decision.until is not None and decision.until < self._now + 86_400_000
        if decision.why == "default" and not near:
            decision = Decision(decision.target, "default")
        return sentences.why(
            decision,
            self._viewer(decision.reservation),
            running_model=self._said.running_model or "",
            override_by=by,
            override_until=self._channel.override_until,
            waits=waits,
        )

    def _override_named(self) -> bool:
        return self._ctx.settings.show_holders != "admins" or self._actor.role == "admin"

    def _viewer(self, booking: Any) -> sentences.Viewer:
        shown = booking is not None and bool(
            may(self._actor, "reservation.holder", HolderName(booking.holder_id, self._ctx.settings.show_holders))
        )
        return sentences.Viewer(self._actor.id, shown, lambda at: show.time_tag(at, self._now, self._zone))
