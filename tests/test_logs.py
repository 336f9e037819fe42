"""Log lines: as text, or as one JSON object with the pairs taken apart."""

from __future__ import annotations

import json
import logging

from protos.shared import logs


def record(message: str, *args: object) -> logging.LogRecord:
    made = logging.LogRecord("a.b", logging.WARNING, "f", 1, message, args, None)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    return made


def test_text() -> None:
    line = logs.TextLines().format(record("node lost node=%s why=%r", "n1", "no answer"))
    assert line == "2023-11-14T22:13:20.250Z WARNING a.b node lost node=n1 why='no answer'"


def test_json() -> None:
    said = logs.JsonLines().format(record("node lost node=%s why=%r level=%s", "n1", "no 'one' answers", "x"))
    assert json.loads(said) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "a.b",
        "message": "node lost",
        "node": "n1",
        "why": "no 'one' answers",
    }
