"""What there is to translate: every marked text of the controller's source and the console's templates, and what settings
mean."""

from __future__ import annotations

from pathlib import Path

from babel.messages.extract import extract_from_file

from agent.engines import environment, llamacpp, prefixed, sglang, vllm
from controller.settings import Settings

CONTROLLER = Path(__file__).parents[1] / "controller"
KEYWORDS = {"_": None, "gettext": None, "ngettext": (1, 2), "N_": None, "say": None, "raw": None}


def texts() -> set[str | tuple[str, str]]:
    """Message ids; (singular, plural) where a text has two forms."""
    found: set[str | tuple[str, str]] = set()
    for path in sorted(CONTROLLER.rglob("*.py")):
        own = (
            path.is_relative_to(CONTROLLER / "notify") or path.name == "calendars.py"
        )  # they have a catalogue of their own
        keywords = {"say": None} if own else KEYWORDS
        found.update(m[1] for m in extract_from_file("python", path, keywords) if m[1])
    options = {"trimmed": "false", "newstyle_gettext": "true"}
    for path in (CONTROLLER / "console" / "templates").rglob("*.html"):
        found.update(
            m[1] for m in extract_from_file("jinja2.ext:babel_extract", path, KEYWORDS, options=options) if m[1]
        )
    found |= engines()
    found.update(field.description for field in Settings.model_fields.values() if field.description)
    return {m if isinstance(m, str) else (m[0], m[1]) for m in found if isinstance(m, (str, tuple))}


def engines() -> set[str]:
    """Why an engine's argument or variable is dropped."""
    tables = [table.values() for table in (llamacpp.OWNED, vllm.OWNED, sglang.OWNED)]
    reasons = [why for _, why in (*environment.OWNED, *environment.OWNED_IN_PRESETS)]
    own = (prefixed.STRAY, prefixed.NO_VALUE_FOLLOWS, prefixed.NOT_PASSABLE, prefixed.DOTTED_VALUE)
    return {*(why for table in tables for why in table), *reasons, *own}


if __name__ == "__main__":
    for text in sorted(texts(), key=str):
        print(repr(text))
