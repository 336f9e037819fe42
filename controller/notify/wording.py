"""Facts into words: one message as a title, a sentence, facts and advice, in a language and a time zone. Pure.

In the product, in mails, webhooks, chats and on the command line it is the same message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from controller.notify import labels, texts, texts_participants
from controller.notify.kinds import GROUPS, KINDS, WAY_TITLES
from controller.notify.language import Clock, translated
from controller.words import CATEGORIES

LINKS: dict[str, str] = {
    "booking": "/bookings/{reservation_id}",
    "approvals": "/approvals",
    "channel": "/channels/{channel}",
    "nodes": "/admin/nodes",
    "timeline": "/timeline",
    "delivery": "/admin/notifications",
    "settings": "/account/notifications",
}
IN_TITLE = ("channel", "model", "card", "when", "holder", "model_name")
LONGEST = 2000  # of a text that somebody typed
_MARKS = frozenset("\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2028\u2029\u2066\u2067\u2068\u2069")


@dataclass(frozen=True, slots=True)
class Rendered:
    """`rows` are (label, value), a value of several lines has line breaks; `link` is a console path, "" where there is
    none."""

    title: str
    lead: str
    rows: tuple[tuple[str, str], ...]
    advice: tuple[str, ...]
    link: str

    names: tuple[str, ...] = ()  # of the rows, as in labels.LABELS
    language: str = "en"

    def sentence(self) -> str:
        """All of it as running text, without what the title says already: what lists show."""
        colon, between, stop, gap = ("：", "；", "。", "") if self.language.startswith("zh") else (": ", "; ", ".", " ")
        said = [
            f"{label}{colon}{value.replace(chr(10), between)}"
            for name, (label, value) in zip(self.names, self.rows, strict=True)
            if name not in IN_TITLE
        ]
        return gap.join([self.lead, *(f"{one.rstrip('.。')}{stop}" for one in said), *self.advice]).strip()


def render(kind: str, facts: Mapping[str, Any], language: str = "en", zone: ZoneInfo | None = None) -> Rendered:
    """The message of these facts; without a zone its times are RFC 3339 in UTC."""
    message = _message(str(facts.get("message") or kind), facts)
    if message is None:  # a ready sentence, or of a version that knew more than this one
        text = one_line(facts.get("text") or kind)
        return Rendered(one_line(text, 120), text, (), (), "")
    clock = Clock(language, zone)
    places = _places(facts, clock)
    there = {name for name, value in {**facts, **places}.items() if value not in (None, "", [], False)}
    advice = [translated(text, language) % places for when, text in message.advice if _fits(when, there)]
    lead = translated(message.lead, language) % places
    named = [(name, value) for name, value in _rows(facts, clock).items() if value and value != lead]
    rows = tuple((translated(labels.LABELS[name], language), value) for name, value in named)
    title = translated(message.title, language) % places
    return Rendered(
        title, lead, rows, tuple(advice), link_of(message.link, facts), tuple(name for name, _ in named), language
    )


def link_of(link: str, facts: Mapping[str, Any]) -> str:
    """The console's path that a message is about."""
    if link == "nodes" and facts.get("reservation_id"):
        link = "booking"  # told to its holder, for whom the list of nodes is not
    path = LINKS[link]
    for name in ("reservation_id", "channel"):
        if f"{{{name}}}" in path:
            value = str(facts.get(name) or "")
            if not value:
                return ""
            path = path.replace(f"{{{name}}}", quote(value, safe="/"))
    return path


def what(facts: Mapping[str, Any], language: str) -> str:
    """`model:preset`, or the whole card."""
    model, preset = facts.get("model"), facts.get("preset")
    if not model:
        return translated(labels.CARD, language)
    return one_line(f"{model}:{preset}" if preset else model)


def one_line(text: Any, longest: int = LONGEST) -> str:
    """A text that somebody typed, as one line: no line breaks, control characters or marks that turn the direction of
    writing, and not endless."""
    flat = "".join(c if c.isprintable() and c not in _MARKS else " " for c in str(text))
    flat = " ".join(flat.split())
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def kind_title(kind: str, language: str) -> str:
    return translated(KINDS[kind].title, language)


def group_title(group: str, language: str) -> str:
    return translated(GROUPS[group], language)


def way_title(way: str, language: str) -> str:
    return translated(WAY_TITLES[way], language)


def _message(name: str, facts: Mapping[str, Any]) -> texts.Message | None:
    """In words for who shares the booking where it is theirs by that, and where the holder's would be wrong for them."""
    others = texts_participants.MESSAGES.get(name) if facts.get("participant") else None
    return others or texts.MESSAGES.get(name)


def _fits(when: str, there: set[str]) -> bool:
    return not when or (when[1:] not in there if when.startswith("!") else when in there)


def _places(facts: Mapping[str, Any], clock: Clock) -> dict[str, str]:
    """What stands in a sentence's places; whoever is not known is somebody."""
    start, end = facts.get("starts_at"), facts.get("ends_at")
    somebody = translated(labels.SOMEBODY, clock.language)
    places = {
        name: one_line(facts.get(name) or "") for name in ("channel", "node", "text", "default", "target", "attempts")
    }
    places |= {name: one_line(facts.get(name) or somebody) for name in ("holder", "by")}
    places["left_by"] = one_line(facts.get("left_by") or "")
    places |= {
        "what": what(facts, clock.language),
        "window": _window(facts, clock),
        "start_time": clock.time(start) if start is not None else "",
        "end_time": clock.time(end) if end is not None else "",
        "next_time": clock.at(facts["next_at"]) if facts.get("next_at") else "",
        "since": clock.at(facts["since"]) if facts.get("since") else "",
        "until": clock.at(facts["until"]) if facts.get("until") else "",
    }
    return places


def _rows(facts: Mapping[str, Any], clock: Clock) -> dict[str, str]:
    """The values of labels.LABELS, in its order; empty where there is nothing to say."""
    language = clock.language
    start, end = facts.get("starts_at"), facts.get("ends_at")
    booked = start is not None and end is not None
    values: dict[str, str] = {
        name: one_line(facts.get(name) or "")
        for name in ("text", "channel", "reason", "note", "detail", "error", "base_url", "host")
    }
    cause = translated(CATEGORIES.get(str(facts.get("category")), ""), language)
    said_already = bool(cause) and values["reason"].lower().startswith(cause.lower())
    values["cause"] = "" if said_already else cause
    if facts.get("about_holder"):
        values["holder"] = one_line(facts.get("holder") or "")
    if facts.get("model"):
        values["model"] = what(facts, language)
    elif booked:
        values["card"] = translated(labels.CARD, language)
    if several := _several(facts):
        values["dates"] = "\n".join(_date(one, clock) for one in several)
    elif start is not None and end is not None:
        values["when"] = _zoned(clock, start, end)
    if (before := facts.get("before")) and isinstance(before, Mapping):
        values["before"] = _was(before, clock)
    if facts.get("base_url"):
        values["model_name"] = one_line(facts.get("model") or "")
    gpus = [one_line(g) for g in facts.get("gpus") or []]
    values["gpus"] = "\n".join(gpus)
    values["visible"] = f"export CUDA_VISIBLE_DEVICES={','.join(gpus)}" if gpus else ""
    values["processes"] = "\n".join(_process(p, language) for p in facts.get("processes") or [])
    if facts.get("message") == "card_in_use_admin":  # an administrator's command, and nobody else's
        values["end_them"] = f"sudo kill {' '.join(str(int(p['pid'])) for p in facts.get('processes') or [])}"
    values["bookings"] = "\n".join(_listed(labels.BOOKED, b, clock) for b in facts.get("bookings") or [])
    values["others"] = "\n".join(_listed(labels.FREE, o, clock) for o in facts.get("others") or [])
    return {name: values.get(name, "") for name in labels.LABELS}


def _several(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The windows of a notice about more than one booking."""
    return list(facts.get("dates") or [])


def _window(facts: Mapping[str, Any], clock: Clock) -> str:
    start, end = facts.get("starts_at"), facts.get("ends_at")
    if start is None or end is None:
        return ""
    first, several = clock.window(start, end), _several(facts)
    if not several:
        return first
    return translated(labels.AND_MORE, clock.language) % {"window": first, "count": len(several) - 1}


def _date(said: Mapping[str, Any], clock: Clock) -> str:
    window = _zoned(clock, said["starts_at"], said["ends_at"])
    if not said.get("channel"):
        return window
    text = translated(labels.DATE_ON, clock.language)
    return text % {"what": what(said, clock.language), "channel": one_line(said["channel"]), "window": window}


def _zoned(clock: Clock, start: int, end: int) -> str:
    window = clock.window(start, end)
    if clock.zone is None:
        return window
    return translated(labels.ZONED, clock.language) % {"window": window, "zone": clock.named(start)}


def _was(before: Mapping[str, Any], clock: Clock) -> str:
    """What a changed booking was: only what has changed is in `before`."""
    parts = [one_line(before["channel"])] if before.get("channel") else []
    if before.get("model"):
        parts.append(what(before, clock.language))
    if before.get("starts_at") is not None and before.get("ends_at") is not None:
        parts.append(clock.window(before["starts_at"], before["ends_at"]))
    return ", ".join(parts)


def _process(said: Mapping[str, Any], language: str) -> str:
    memory = said.get("memory_bytes") or 0
    unknown = translated(labels.UNKNOWN, language)
    return translated(labels.PROCESS, language) % {
        "command": one_line(said.get("command") or unknown, 200),
        "pid": said.get("pid"),
        "user": one_line(said.get("user") or unknown, 100),
        "memory": f"{memory / 1e9:.1f} GB" if memory else unknown,
    }


def _listed(text: str, said: Mapping[str, Any], clock: Clock) -> str:
    return translated(text, clock.language) % {
        "holder": one_line(said.get("holder") or translated(labels.SOMEBODY, clock.language)),
        "channel": one_line(said.get("channel") or ""),
        "window": clock.window(said["starts_at"], said["ends_at"]),
    }
