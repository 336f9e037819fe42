"""The words around a message's sentence: labels of its facts, how bookings, windows and processes are listed, and its foot."""

from __future__ import annotations

from controller.words import N_

CARD = N_("the whole card")
# Labels of the facts, in the order in which they are shown.
LABELS: dict[str, str] = {
    "text": N_("Why"),
    "channel": N_("Channel"),
    "model": N_("Model"),
    "card": N_("Kind"),
    "when": N_("When"),
    "dates": N_("Dates"),
    "before": N_("Before"),
    "holder": N_("For"),
    "note": N_("Note"),
    "cause": N_("Cause"),
    "reason": N_("Reason"),
    "detail": N_("The engine said"),
    "error": N_("Error"),
    "base_url": N_("Base URL"),
    "model_name": N_("Model name"),
    "host": N_("Host"),
    "gpus": N_("GPUs"),
    "visible": N_("For your shell"),
    "processes": N_("Processes"),
    "end_them": N_("To end them, on the node"),
    "bookings": N_("Bookings there"),
    "others": N_("Free elsewhere"),
}
PROCESS = N_("%(command)s (pid %(pid)s, user %(user)s, %(memory)s)")
BOOKED = N_("%(holder)s on %(channel)s, %(window)s")
FREE = N_("%(channel)s, %(window)s")
DATE_ON = N_("%(window)s: %(what)s on %(channel)s")
AND_MORE = N_("%(window)s and %(count)s more")
UNKNOWN = N_("unknown")
SOMEBODY = N_("somebody")
FOOTER = N_("You are told this by SlotServe. Choose what you are told, and how:")
OPEN = N_("Open in SlotServe")
ZONED = N_("%(window)s (%(zone)s)")
