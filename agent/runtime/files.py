"""Small JSON files of a channel's folder: written whole (a rename), 0600, read tolerantly."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from protos.shared.files import write_private

log = logging.getLogger(__name__)


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all. Not synced: after a power cut another boot id makes all of it void."""
    write_private(path, json.dumps(value).encode(), sync=False)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object, or None where there is none or it cannot be used (then a warning says so)."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as err:
        log.warning("file not usable path=%s error=%s", path, err)
        return None
    return value if isinstance(value, dict) else None
