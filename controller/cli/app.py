"""What every command is given: where the controller is, whose key, which clock and zone, and how to print.

Tests put their own transport, clock and zone in; nothing heavy is imported until a command needs it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from controller.cli import times
from protos.shared.files import write_private

if TYPE_CHECKING:
    from controller.cli.client import Client

STAMP = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z")
WHOLE = ("id", "channel", "node", "time", "free", "at", "key")  # columns that are not broken on a narrow terminal
DEFAULT_URL = "http://127.0.0.1:8700"


def _now() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class App:
    """`as_json` is the answer's form; `transport` an httpx transport of a test."""

    transport: Any = None
    clock: Callable[[], int] = _now
    zone: tzinfo = field(default_factory=times.local_zone)
    as_json: bool = False

    def client(self, timeout: float = 30) -> Client:
        """A client of the controller in force: environment first, then what `slotserve login` stored."""
        from controller.cli.client import Client

        url, key = self.credentials()
        return Client(url, key, self.transport, timeout, self)

    def credentials(self) -> tuple[str, str]:
        """(URL, API key). A stored key goes only to the URL it was stored for."""
        stored = read_credentials()
        url = os.environ.get("SLOTSERVE_URL") or stored.get("url") or DEFAULT_URL
        key = os.environ.get("SLOTSERVE_API_KEY", "")
        if not key and _same(url, stored.get("url", "")):
            key = stored.get("api_key", "")
        return url, key

    def instant(self, text: str, after: int | None = None, what: str = "") -> int:
        """A time that a person typed; a wrong one is a usage error that names the option."""
        try:
            instant = times.parse_instant(text, self.clock(), self.zone, after)
            if not times.EARLIEST <= instant < times.LATEST:
                raise times.TimeError(f"{text!r} lies outside of the years 1971 to 9998")
            return instant
        except times.TimeError as err:
            raise click.BadParameter(str(err), param_hint=what or None) from None

    def duration(self, text: str, what: str = "") -> float:
        try:
            return times.parse_duration(text)
        except times.TimeError as err:
            raise click.BadParameter(str(err), param_hint=what or None) from None

    def when(self, text: str | None) -> str:
        """A time of an answer, for people."""
        return times.show(times.from_api(text), self.clock(), self.zone) if text else ""

    def told(self, text: Any) -> str:
        """A sentence of the controller with its times as this person reads them."""
        return STAMP.sub(lambda found: self.when(found[0]), str(text))

    def window(self, starts_at: str, ends_at: str) -> str:
        """16:00–18:00, each with its day where it is not today."""
        start, end, now = times.from_api(starts_at), times.from_api(ends_at), self.clock()
        first, last = times.show(start, now, self.zone), times.show(end, now, self.zone)
        if first.rpartition(" ")[0] == last.rpartition(" ")[0]:
            last = last.rpartition(" ")[2]
        return f"{first}–{last}"

    def out(self, answer: Any, people: Callable[[], None]) -> None:
        """The answer as it is for scripts, or what `people` prints."""
        if self.as_json:
            click.echo(json.dumps(answer, ensure_ascii=False, indent=2))
        else:
            people()

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[Any]], empty: str = "Nothing.") -> None:
        """A table: by rich on a terminal, aligned plain text elsewhere."""
        if not rows:
            click.echo(empty)
            return
        cells = [[_cell(c) for c in row] for row in rows]
        if sys.stdout.isatty():
            _rich_table(heads, cells)
        else:
            widths = [max(_width(x) for x in column) for column in zip(heads, *cells, strict=True)]
            for line in ([h.upper() for h in heads], *cells):
                click.echo("  ".join(_pad(c, w) for c, w in zip(line, widths, strict=True)).rstrip())


def credentials_file() -> Path:
    """Where `slotserve login` keeps its word: ~/.config/slotserve/credentials, or below XDG_CONFIG_HOME."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "slotserve" / "credentials"


def read_credentials() -> dict[str, str]:
    """{url, api_key}, or nothing; a file that cannot be read is an error that names it."""
    try:
        data = json.loads(credentials_file().read_text())
        return {k: str(data[k]) for k in ("url", "api_key") if k in data}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as err:
        raise click.ClickException(f"{credentials_file()}: {err}; run slotserve login again, or delete it") from None


def write_credentials(url: str, key: str) -> Path:
    """Stores them whole, readable by the person alone."""
    path = credentials_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, json.dumps({"url": url, "api_key": key}).encode() + b"\n")
    return path


def _same(one: str, other: str) -> bool:
    return one.rstrip("/").removesuffix("/api/v1") == other.rstrip("/").removesuffix("/api/v1")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _width(text: str) -> int:
    import unicodedata

    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _rich_table(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head in WHOLE)
    for row in cells:
        table.add_row(*(Text(c) for c in row))  # Text: nothing in a name is markup
    Console().print(table)
