"""The one table of words for states, reasons and failures: the console translates them, the command line shows them.

Whole sentences with %(name)s places, never pieces glued together. Plain data: nothing is imported, so `slotserve`
starts quickly. `N_` only marks a text for the translators' catalogue.
"""

from __future__ import annotations


def N_(text: str) -> str:
    """Marks a text for translation and gives it back."""
    return text


# phase -> (text, icon, pill): icon and pill are classes of the style sheet.
PHASES: dict[str, tuple[str, str, str]] = {
    "ready": (N_("Ready"), "dot", "ok"),
    "loading": (N_("Loading"), "arc", "busy"),
    "draining": (N_("Switching"), "swap", "busy"),
    "stopping": (N_("Switching"), "swap", "busy"),
    "freeing": (N_("Switching"), "swap", "busy"),
    "retry_wait": (N_("Failed"), "oct", "bad"),
    "blocked": (N_("Blocked"), "oct", "bad"),
    "off": (N_("Nothing loaded"), "ring", "idle"),
    "unknown": (N_("Offline"), "cut", "grey"),
    "gone": (N_("Gone"), "cut", "grey"),
}
FALLBACK = (N_("Fallback"), "half", "warn")
EXCLUSIVE = (N_("Exclusive"), "lock", "ink")

WHY: dict[str, str] = {
    "reserved": N_("Reserved by %(holder)s until %(until)s"),
    "reserved_mine": N_("Your booking"),
    "reserved_unnamed": N_("Reserved until %(until)s"),
    "exclusive": N_("Exclusive for %(holder)s; nothing is loaded"),
    "exclusive_mine": N_("Your exclusive booking; nothing is loaded"),
    "exclusive_unnamed": N_("Exclusive booking; nothing is loaded"),
    "preload": N_("Preloading for %(holder)s, who starts at %(start)s"),
    "preload_mine": N_("Preloading for you, from %(start)s"),
    "preload_unnamed": N_("Preloading for the booking at %(start)s"),
    "clearing": N_("Emptying the card for %(holder)s, exclusive from %(start)s"),
    "clearing_mine": N_("Emptying the card for your exclusive booking from %(start)s"),
    "clearing_unnamed": N_("Emptying the card for the exclusive booking from %(start)s"),
    "short_gap": N_("Gap too short for the default; already on %(holder)s's model, open to all until %(start)s"),
    "short_gap_mine": N_("Gap too short for the default; already on your model, open to all until %(start)s"),
    "short_gap_unnamed": N_(
        "Gap too short for the default; already on the next booking's model, open to all until %(start)s"
    ),
    "short_gap_exclusive": N_(
        "Gap too short for the default before %(holder)s's exclusive booking; %(model)s stays, open to all until %(until)s"
    ),
    "short_gap_exclusive_mine": N_(
        "Gap too short for the default before your exclusive booking; %(model)s stays, open to all until %(until)s"
    ),
    "short_gap_exclusive_unnamed": N_(
        "Gap too short for the default before the exclusive booking; %(model)s stays, open to all until %(until)s"
    ),
    "override": N_("Override, until a booking begins"),
    "override_until": N_("Override until %(until)s, or until a booking begins"),
    "override_by": N_("Override by %(by)s, until a booking begins"),
    "override_by_until": N_("Override by %(by)s until %(until)s, or until a booking begins"),
    "default": N_("Default, open to all"),
    "default_until": N_("Default, open to all until %(until)s"),
    "default_waits": N_("Default, open to all once it is ready"),
    "idle": N_("No default set, so nothing is loaded"),
}
FALLBACK_WHY: dict[str, str] = {
    "": N_("The default answers for %(holder)s while %(model)s waits for its next try"),
    "_mine": N_("The default answers for you while %(model)s waits for its next try"),
    "_unnamed": N_("The default answers while %(model)s waits for its next try"),
}

# failure category -> its cause in words; the engine's own line and what to lower come with the reason.
CATEGORIES: dict[str, str] = {
    "out_of_memory": N_("Out of GPU memory"),
    "kv_cache_too_small": N_("The context does not fit into GPU memory"),
    "gpu_busy": N_("A GPU is held by somebody else's process"),
    "bad_argument": N_("The engine does not accept an argument of the preset"),
    "missing_file": N_("A file is missing on this node"),
    "broken_file": N_("The model's file is damaged or cut short"),
    "unsupported_architecture": N_("The engine does not know this kind of model"),
    "port_taken": N_("The port was taken by another process"),
    "missing_library": N_("The engine lacks a shared library"),
    "killed_by_kernel": N_("Killed by the kernel: the machine ran out of memory"),
    "cpu_fallback": N_("The engine did not find its GPU and would run on the processor"),
    "load_timeout": N_("Not ready within the load time-out"),
    "hung": N_("The engine no longer answered"),
    "crashed": N_("The engine ended by itself"),
}

STATUSES: dict[str, str] = {
    "pending": N_("waiting for approval"),
    "approved": N_("approved"),
    "rejected": N_("rejected"),
    "expired": N_("expired"),
    "cancelled": N_("cancelled"),
    "ended_early": N_("ended early"),
    "finished": N_("finished"),
    "running": N_("running"),
}

LAST_SEEN = N_("Last seen at %(at)s: %(state)s")
