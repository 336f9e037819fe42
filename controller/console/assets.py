"""The console's style sheets and scripts: which there are, in which order, and their addresses.

Ours lie in `static/`; what comes from npm packages lies in `static/vendor/` (controller/console/vendor.py puts it
there at install time). An address carries a mark of the content, so that browsers may keep it for ever.
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


def there(name: str) -> bool:
    """Whether a file was installed."""
    return (STATIC / name).is_file()


@cache
def _mark(name: str) -> str:
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]
