"""How pages show times, durations, sizes and names. Instants are ms, zones come from the viewer."""

from __future__ import annotations

import json
import math
import re
import shlex
from datetime import UTC, datetime, timedelta, tzinfo

from flask_babel import format_datetime, get_locale
from flask_babel import gettext as _
from markupsafe import Markup, escape

# What comes after a model's name proper: a quantisation or number format, at the end.
_TAIL = re.compile(
    r"[-_.](?:UD[-_])?(?:I?Q\d[A-Za-z0-9_]*|BF16|F16|FP16|F32|FP8|FP4|MXFP4|NVFP4|AWQ|GPTQ|INT[48]|W\dA\d+)$",
    re.IGNORECASE,
)


def moment(instant: int, zone: tzinfo = UTC) -> datetime:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant)).astimezone(zone)


def instant(text: str) -> int:
    """The milliseconds of a time that the API told: without parse's bounds, for a node's clock may stand at 1970."""
    return round((datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def time_tag(instant: int, now: int, zone: tzinfo, seconds: bool = False) -> Markup:
    """<time> with the viewer's clock, the day only when it is not today, UTC in the tooltip."""
    utc = moment(instant)
    title = utc.strftime("%H:%M:%S UTC" if seconds else "%H:%M UTC")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        utc.strftime("%Y-%m-%dT%H:%M:%SZ"), title, clock(instant, now, zone, seconds)
    )


def clock(instant: int, now: int, zone: tzinfo, seconds: bool = False) -> str:
    """14:30, Fri 09:00, 24 Dec 09:00."""
    local, today = moment(instant, zone), moment(now, zone).date()
    text = local.strftime("%H:%M:%S" if seconds else "%H:%M")
    if local.date() == today:
        return text
    near = 0 < (local.date() - today).days < 7
    return f"{date(local, 'EEE' if near else 'd MMM')} {text}"


_CHINESE = {"d MMM": "M月d日", "EEE d": "d日 EEE", "EEE d MMM": "M月d日 EEE", "EEE d MMM y": "y年M月d日 EEE"}


def date(local: datetime, form: str = "EEE d") -> str:
    """A day, its parts in the order of the reader's language: Thu 19, as an axis names it, or another form."""
    chinese = str(get_locale() or "").startswith("zh")
    # Babel converts to the request's zone by itself; the local date is passed as if it were UTC's.
    return str(format_datetime(local.replace(tzinfo=None), _CHINESE.get(form, form) if chinese else form, rebase=False))


def window(start: int, end: int, now: int, zone: tzinfo) -> Markup:
    """16:00–18:00, or with a day: Fri 16:00–18:00, 19:00 – Fri 07:00."""
    return time_tag(start, now, zone) + until(start, end, now, zone)


def until(start: int, end: int, now: int, zone: tzinfo) -> Markup:
    """A window's second half: –18:00; –24:00 for an end at midnight; – Fri 07:00, the day only where it is another."""
    first, last = moment(start, zone), moment(end, zone)
    midnight = last.hour == last.minute == last.second == 0 and last.date() == first.date() + timedelta(days=1)
    if not midnight and last.date() != first.date():
        return Markup(" – ") + time_tag(end, now, zone)
    utc = moment(end)
    return Markup('–<time datetime="{}" title="{}">{}</time>').format(
        utc.strftime("%Y-%m-%dT%H:%M:%SZ"), utc.strftime("%H:%M UTC"), "24:00" if midnight else last.strftime("%H:%M")
    )


def duration(seconds: float) -> str:
    """84 s, 4 min 34 s, 12 min, 1 h 32 min, 2 d 3 h; a second part of nothing is left out. The browser's script has the
    same rule."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return _("%(s)s s", s=whole)
    if minutes < 10 and whole % 60:
        return _("%(m)s min %(s)s s", m=minutes, s=whole % 60)
    if minutes < 60:
        return _("%(m)s min", m=minutes)
    if hours < 48:
        return _("%(h)s h %(m)s min", h=hours, m=minutes % 60) if minutes % 60 else _("%(h)s h", h=hours)
    return _("%(d)s d %(h)s h", d=days, h=hours % 24) if hours % 24 else _("%(d)s d", d=days)


def countdown(form: str, instant: int, now: int) -> Markup:
    """A duration that the browser goes on counting: `form` is "in", "left" or "since". What is still to come is told in
    whole minutes from ten on, begun ones as whole: 17 min until the end, not 16."""
    seconds = (now - instant if form == "since" else instant - now) / 1000
    if form != "since" and seconds > 600:
        seconds = math.ceil(seconds / 60) * 60
    text = {
        "in": lambda d: _("in %(time)s", time=d),
        "left": lambda d: _("%(time)s left", time=d),
        "since": lambda d: d,
    }
    return Markup('<span data-tick="{}" data-at="{}">{}</span>').format(form, instant, text[form](duration(seconds)))


def gigabytes(size: int) -> str:
    """Memory and files in GB of 10^9 bytes."""
    value = size / 1e9
    return f"{value:.0f}" if value >= 20 or value == int(value) else f"{value:.1f}"


def model_name(name: str | None) -> Markup:
    """The name in two pieces: its head gives way where room is short, its tail (the quantisation) never does."""
    name = name or ""
    match = _TAIL.search(name)
    cut = match.start() if match and match.start() > 0 else len(name)
    tail = Markup("<span>{}</span>").format(name[cut:]) if name[cut:] else ""
    return Markup('<span class="mn" title="{}"><span>{}</span>{}</span>').format(name, name[:cut], tail)


_BROWSERS = {"Edg/": "Edge", "OPR/": "Opera", "Firefox/": "Firefox", "Chrome/": "Chrome", "Safari/": "Safari"}
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS", "Linux")


def browser(agent: str) -> str:
    """A browser and its system out of what it says of itself; the beginning of it where it is no browser we know."""
    name = next((called for mark, called in _BROWSERS.items() if mark in agent), "")
    system = next((s for s in _SYSTEMS if s in agent), "")
    return ", ".join(filter(None, (name, system))) if name else agent[:60]


def curl(base_url: str, model: str, preset: str | None) -> str:
    """A call for a shell; the key comes from its environment, for it is on no page."""
    body = {"model": f"{model}:{preset}" if preset else model, "messages": [{"role": "user", "content": "Hello"}]}
    lines = [
        f"curl {shlex.quote(base_url + '/chat/completions')}",
        '-H "Authorization: Bearer $SLOTSERVE_API_KEY"',
        "-H 'Content-Type: application/json'",
        f"-d {shlex.quote(json.dumps(body, ensure_ascii=False))}",
    ]
    return " \\\n  ".join(lines)


def quoted(text: str) -> str:
    """A word for a shell."""
    return shlex.quote(text)


def beyond(reason: str, cause: str) -> str:
    """The reason without the cause that stands before it already."""
    if reason.lower().startswith(cause.lower()):
        return reason[len(cause) :].lstrip(" .:;,")
    return reason


def anchor(*names: str) -> str:
    """An id for a page out of names."""
    return str(escape("ch-" + "-".join(re.sub(r"[^\w.-]", "_", n) for n in names)))
