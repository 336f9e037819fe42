"""Language and time zone of a page: what the person chose, else what the browser says.

The catalogues are committed as .po files, by subject, and compiled at every start into the state folder: nothing to
forget at a release, and a tenth of a second.
"""

from __future__ import annotations

import io
import os
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from flask import Flask, redirect, request
from flask.typing import ResponseReturnValue
from flask_babel import Babel, get_locale

from controller.console.signed_in import person, safe_next
from controller.context import Context

TRANSLATIONS = Path(__file__).parent / "translations"
LANGUAGES = {"en": "English", "zh_Hans": "中文"}
YEAR = 365 * 86400


def register(app: Flask, ctx: Context) -> None:
    """Babel with our catalogues, and the switch of languages."""
    folder = compile_catalogues(ctx.settings.state_dir / "translations")
    app.config["BABEL_TRANSLATION_DIRECTORIES"] = str(folder)
    Babel(app, locale_selector=chosen_language, timezone_selector=lambda: str(chosen_zone()))

    @app.get("/language/<code>")
    def language(code: str) -> ResponseReturnValue:
        answer = redirect(safe_next(request.args.get("next")))
        if code in LANGUAGES:
            answer.set_cookie("language", code, max_age=YEAR, samesite="Lax", httponly=True, secure=request.is_secure)
        return answer


def compile_catalogues(folder: Path) -> Path:
    """Writes <folder>/<language>/LC_MESSAGES/messages.mo out of the language's .po files; returns the folder."""
    for language in sorted(path.name for path in TRANSLATIONS.iterdir() if path.is_dir()):
        target = folder / language / "LC_MESSAGES" / "messages.mo"
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        beside.write_bytes(compiled(language))
        os.replace(beside, target)
    return folder


@cache
def compiled(language: str) -> bytes:
    """A language's catalogue as gettext reads it, made once a process."""
    made = io.BytesIO()
    write_mo(made, catalogue(language))
    return made.getvalue()


def catalogue(language: str) -> Catalog:
    """All .po files of a language as one."""
    whole: Catalog | None = None
    for source in sorted((TRANSLATIONS / language / "LC_MESSAGES").glob("*.po")):
        with source.open("rb") as file:
            part = read_po(file, abort_invalid=True)
        if whole is None:
            whole = part
            continue
        for message in part:
            if message.id:
                whole[message.id] = message
    if whole is None:
        raise FileNotFoundError(f"no catalogue of {language}")
    return whole


def chosen_language() -> str:
    """The cookie, the person's own setting, the browser's wish, English."""
    who = person()
    for wish in (request.cookies.get("language"), who.locale if who else None):
        if wish in LANGUAGES:
            return wish
    for wish in request.accept_languages.values():
        low = wish.lower().replace("_", "-")
        if low.startswith("zh"):
            return "zh_Hans"
        if low.startswith("en"):
            return "en"
    return "en"


def language_tag() -> str:
    """For <html lang>: en, zh-Hans."""
    return str(get_locale() or "en").replace("_", "-")


def chosen_zone() -> ZoneInfo:
    """The person's own setting, else the browser's (a cookie), else UTC."""
    who = person()
    for wish in (who.zone if who else None, request.cookies.get("zone")):
        if wish and len(wish) <= 64:
            try:
                return ZoneInfo(wish)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                continue
    return ZoneInfo("UTC")
