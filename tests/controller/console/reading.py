"""How the tests of pages read them."""

from __future__ import annotations

import html
import re

HOUR = 3_600_000


def plain(page: str) -> str:
    """The text of a page, as a person reads it."""
    text = re.sub(r"<(script|svg|option)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split()).replace(" .", ".").replace(" ,", ",")
