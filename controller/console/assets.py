"""The console's style sheets and scripts: which there are, in which order, and their addresses.

All of them are ours and lie in `static/`: nothing is fetched at install time or at run time. An address carries a mark
of the content, so that browsers may keep it for ever.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
# Every page loads all of them: they are small and kept. A page's own come after, from its template's `head` block.
STYLES = ("base", "parts", "overview", "timeline", "dialog", "channel", "lists", "narrow", "icons")


def url(name: str) -> str:
    """The address of a file under static/; the name as it is where the file is not there (an install without assets)."""
    try:
        return f"/static/{name}?v={_mark(name)}"
    except FileNotFoundError:
        return f"/static/{name}"


@cache
def _mark(name: str) -> str:
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]
