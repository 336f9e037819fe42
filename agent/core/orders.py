"""What a command makes of a channel's view: reload, retry, stop its engines. Pure."""

from __future__ import annotations

from dataclasses import replace

from agent.core import view as views
from agent.core.choice import name, waiting
from agent.core.types import Millis
from agent.core.view import ChannelView

HELD = "what runs is stopped; the next change of the plan, a reload or a retry starts it again"


def obey(view: ChannelView, kind: str, now: Millis) -> tuple[ChannelView, bool, str]:
    """The view after it, whether the command was taken, and the answer in words."""
    if kind == "stop_engines":
        return views.discard(replace(view, held=True), "engines are stopped by hand"), True, HELD
    if kind not in ("reload", "retry"):
        return view, False, f"there is no command {kind!r}: reload, retry or stop_engines"
    step = view.step
    if step is None or step.target is None:
        return view, False, "nothing should be loaded on this channel now"
    if kind == "reload":
        again_at = now if view.phase == "blocked" else view.again_at
        anew = views.forgive(views.discard(replace(view, held=False, again_at=again_at), "reload"))
        return anew, True, f"{name(step.target)} is being loaded anew"
    if not (view.held or view.phase == "blocked" or waiting(view, step.target) or waiting(view, step.fallback)):
        return view, False, f"{name(step.target)} is not waiting for another try"
    tried = replace(views.forgive(view), held=False, again_at=min(now, view.again_at))
    return tried, True, f"{name(step.target)} is tried now"
