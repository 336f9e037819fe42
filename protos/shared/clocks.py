"""How far a node's wall clock may be from the controller's: from when it is shown, and beyond what it is trouble.

Bookings are corrected for it (a node follows the controller's time); certificates, which are checked by the machine's own
clock, and the times in its logs are not.
"""

from __future__ import annotations

SHOWN_SECONDS = 2.0
LIMIT_SECONDS = 30.0


def shown(skew: float | None) -> bool:
    """Whether people are told of it."""
    return skew is not None and abs(skew) >= SHOWN_SECONDS


def wrong(skew: float | None) -> bool:
    """Whether it is beyond the limit."""
    return skew is not None and abs(skew) > LIMIT_SECONDS
