"""How every benchmark prints its figures: one table for people, and the same as JSON where BENCH_JSON names a file.

A row is a mapping with `name`, `value` (number or text), `unit`, `goal` (in words, such as "< 10") and, where the
figure has one, `peer`: what it is compared with. The JSON file is one object by title; a second benchmark adds to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("name", "value", "unit", "goal", "peer")


def report(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints the table; with BENCH_JSON=FILE also merges it into that file under `title`."""
    cells = [[_text(row.get(column)) for column in COLUMNS] for row in rows]
    shown = [i for i, _ in enumerate(COLUMNS) if i < 4 or any(line[i] for line in cells)]
    widths = [max(len(COLUMNS[i]), *(len(line[i]) for line in cells)) if cells else len(COLUMNS[i]) for i in shown]
    print(f"\n{title}")
    for line in [list(COLUMNS), ["-" * w for w in widths], *cells]:
        picked = line if len(line) == len(shown) else [line[i] for i in shown]
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(picked, widths, strict=True)).rstrip())
    if target := os.environ.get("BENCH_JSON"):
        _merge(Path(target), title, rows)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def _merge(file: Path, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    known: dict[str, Any] = {}
    if file.exists():
        known = json.loads(file.read_text() or "{}")
    known[title] = [{column: row.get(column) for column in COLUMNS} for row in rows]
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    part.replace(file)
