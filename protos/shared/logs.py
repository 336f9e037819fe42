"""How a process of ours writes its log lines: as text, or as one JSON object a line with the same keys.

A message is a constant followed by key=value pairs; the JSON form takes the pairs apart.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time

PAIR = re.compile(r"(?P<key>[a-z_][a-z0-9_]*)=(?P<value>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\S*)")


def set_up(level: str = "info", form: str = "text") -> None:
    """Sends the log of this process to standard error. `form` is `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("httpx", "httpcore", "alembic.runtime.migration", "waitress.queue"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


class TextLines(logging.Formatter):
    """`2026-03-01T12:00:00.123Z INFO controller.main ready http=127.0.0.1:8700`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


class JsonLines(TextLines):
    """{"time", "level", "logger", "message", … the pairs of the message}."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        pairs = {m["key"]: _plain(m["value"]) for m in PAIR.finditer(text)}
        first = PAIR.search(text)
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": text[: first.start()].rstrip() if first else text,
            **{k: v for k, v in pairs.items() if k not in ("time", "level", "logger", "message")},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _plain(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
