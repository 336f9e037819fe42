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

# what people read for a field of the API, in refusals and in the audit
FIELDS: dict[str, str] = {
    "allowed_roles": N_("who may book, by role"),
    "allowed_users": N_("who may book, by name"),
    "approval": N_("approval"),
    "approval_over_hours": N_("hours without approval"),
    "args": N_("arguments"),
    "body": N_("request"),
    "channel": N_("channel"),
    "channel_id": N_("channel"),
    "cordoned": N_("out of booking"),
    "count": N_("how often"),
    "current_password": N_("present password"),
    "days": N_("days of the week"),
    "default_model": N_("default model"),
    "default_preset": N_("default preset"),
    "disabled": N_("disabled"),
    "drain_until": N_("maintenance until"),
    "email": N_("e-mail"),
    "enabled": N_("in use"),
    "enrolment": N_("invitation"),
    "ends_at": N_("end"),
    "engine": N_("engine"),
    "env": N_("environment"),
    "every": N_("repeats"),
    "exclusive_allowed": N_("exclusive bookings"),
    "expires_at": N_("valid until"),
    "from": N_("from"),
    "holder": N_("holder"),
    "holder_id": N_("holder"),
    "kind": N_("kind"),
    "kinds": N_("notices"),
    "language": N_("language"),
    "load_timeout_seconds": N_("load time-out (s)"),
    "locale": N_("language"),
    "maintenance": N_("maintenance"),
    "max_concurrent": N_("requests at once"),
    "max_concurrent_per_key": N_("requests at once, a key"),
    "max_days_ahead": N_("days ahead at most"),
    "max_hours": N_("longest booking (h)"),
    "max_hours_held": N_("hours a person, booked or asked for"),
    "max_hours_week": N_("hours a person and week"),
    "min_minutes": N_("shortest booking (min)"),
    "minutes": N_("minutes"),
    "model": N_("model"),
    "name": N_("name"),
    "not_after": N_("no later than"),
    "note": N_("note"),
    "participants": N_("participants"),
    "password": N_("password"),
    "password_temporary": N_("password to be changed"),
    "preload_lead_seconds": N_("lead of preloading (s)"),
    "preset": N_("preset"),
    "reason": N_("reason"),
    "repeat": N_("repeats"),
    "requests": N_("requests beyond the limits"),
    "role": N_("role"),
    "scope": N_("which of them"),
    "session": N_("session"),
    "sessions": N_("sessions"),
    "shared": N_("for everybody"),
    "starts_at": N_("start"),
    "status": N_("status"),
    "subject": N_("account at the identity provider"),
    "temporary": N_("password to be changed"),
    "to": N_("to"),
    "until": N_("until"),
    "url": N_("address"),
    "user": N_("person"),
    "version": N_("version"),
    "way": N_("way"),
    "zone": N_("time zone"),
}


def field_words(name: str) -> str:
    """The words for a field by its place in a body (`repeat.until`, `participants.0`); its name where there are none."""
    for part in reversed(name.split(".")):
        if part in FIELDS:
            return FIELDS[part]
    return name
