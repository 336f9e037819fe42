"""The sentences for those who share a booking, where the holder's would be wrong for them: it is not theirs to change.

What is not here is said to them as to its holder. %(holder)s is never "you" here.
"""

from __future__ import annotations

from controller.notify import texts
from controller.notify.texts import BOOK_ANEW, ONE_RAN, Message
from controller.words import N_

_NOT_YOURS = N_("Only its holder, %(holder)s, can change, extend or cancel it.")
_THEIRS_TO_SAY = N_("%(holder)s and the administrators have been told; what becomes of the booking is theirs to say.")


def _titled(name: str, lead: str, *advice: tuple[str, str], link: str = "") -> Message:
    """With the title that its holder reads, which speaks of the booking alone."""
    theirs = texts.MESSAGES[name]
    return Message(theirs.title, lead, advice, link or theirs.link)


MESSAGES: dict[str, Message] = {
    "participant": Message(
        N_("Shared with you: %(what)s on %(channel)s, %(window)s"),
        N_(
            "%(by)s has named you a participant of %(holder)s's booking: while it runs, its channel serves you as well."
        ),
        (("pending", N_("It still waits for an approver.")), ("", _NOT_YOURS)),
    ),
    "participant_no_longer": Message(
        N_("No longer shared with you: %(what)s on %(channel)s, %(window)s"),
        N_("%(by)s has taken you off the participants of %(holder)s's booking."),
        (("", BOOK_ANEW),),
        "timeline",
    ),
    "approved": _titled(
        "approved",
        N_("%(by)s has approved %(holder)s's booking, which you share."),
        ("", N_("It begins by itself.")),
    ),
    "rejected": _titled(
        "rejected",
        N_("%(by)s has rejected %(holder)s's request, which you were to share. The time is free again."),
        ("", BOOK_ANEW),
    ),
    "expired": _titled(
        "expired",
        N_(
            "%(holder)s's request, which you were to share, was neither approved nor rejected before its time was over."
        ),
        ("", BOOK_ANEW),
    ),
    "changed": _titled(
        "changed",
        N_("%(by)s has changed %(holder)s's booking, which you share. This is what it is now."),
        ("pending", N_("In this form it waits for an approver again.")),
    ),
    "cancelled": _titled(
        "cancelled",
        N_("%(by)s has cancelled %(holder)s's booking, which you share."),
        ("one_ran", ONE_RAN),
        ("", BOOK_ANEW),
    ),
    "uncancelled": _titled(
        "uncancelled",
        N_("%(by)s has taken the cancellation of %(holder)s's booking, which you share, back: it stands as it was."),
        ("pending", N_("It still waits for an approver.")),
        ("!pending", N_("It begins by itself.")),
    ),
    "ended": _titled(
        "ended",
        N_("%(by)s has ended %(holder)s's running booking, which you share. The channel goes on to what comes next."),
        ("", BOOK_ANEW),
    ),
    "starts_soon": _titled(
        "starts_soon",
        N_("%(holder)s's booking, which you share, starts at %(start_time)s."),
        ("model", N_("The model is loaded ahead of the start; you are told when it is ready.")),
        ("!model", N_("At the start nothing is loaded any more, and the card is yours together.")),
    ),
    "ready": _titled(
        "ready",
        N_("The model of %(holder)s's booking, which you share, is loaded and answers you until %(end_time)s."),
    ),
    "ready_card": Message(
        N_("The card is yours together: %(channel)s until %(end_time)s"),
        N_("Nothing is loaded on this channel; until %(end_time)s its GPUs are %(holder)s's and yours."),
        (("", N_("End your processes before then: what stays blocks the channel for whoever comes next.")),),
    ),
    "ends_soon": _titled(
        "ends_soon",
        N_(
            "%(holder)s's booking, which you share, ends at %(end_time)s. Requests that run then are let finish only if "
            "the same model stays."
        ),
        ("next_follows", N_("Another booking follows at once, so it cannot be extended.")),
        ("!next_follows", N_("If you need longer, ask %(holder)s to extend it.")),
    ),
    "card_in_use_soon": Message(
        N_("Processes are still on %(channel)s, which ends at %(end_time)s"),
        N_(
            "%(holder)s's booking of the bare card, which you share, ends at %(end_time)s, and these processes are still "
            "on its GPUs."
        ),
        (("", N_("End those of yours before %(end_time)s. What stays blocks the channel for whoever comes next.")),),
    ),
    "card_in_use_mine": Message(
        N_("Processes of %(holder)s's booking still hold the card of %(channel)s"),
        N_(
            "The booking of the bare card that you shared is over, and these processes are still on its GPUs. Nothing can "
            "be started there until they are gone."
        ),
        (("", N_("End those of yours now. The administrators have been told.")),),
        "channel",
    ),
    "node_lost_running": Message(
        N_("No contact with node %(node)s, where %(holder)s's booking runs"),
        N_(
            "Nothing has been heard of node %(node)s since %(since)s. If only the network between is gone, the model of "
            "the booking that you share goes on answering there."
        ),
        (("", _THEIRS_TO_SAY),),
    ),
    "node_lost_before": Message(
        N_("No contact with node %(node)s, where %(holder)s's booking starts at %(start_time)s"),
        N_(
            "Nothing has been heard of node %(node)s since %(since)s. If it is not back by %(start_time)s, the booking "
            "that you share may not be served."
        ),
        (("", _THEIRS_TO_SAY),),
    ),
    "maintenance": Message(
        N_("Maintenance of node %(node)s, where %(holder)s's booking starts at %(start_time)s"),
        N_(
            "Node %(node)s is in maintenance until %(until)s, so the booking that you share may not be served at its start."
        ),
        (("", _THEIRS_TO_SAY),),
    ),
    "maintenance_over": _titled(
        "maintenance_over",
        N_("The maintenance of node %(node)s is over. The booking that you share begins as it was made."),
    ),
    "channel_gone": _titled(
        "channel_gone",
        N_("%(text)s"),
        ("running", N_("The booking that you share there ends with it.")),
        ("!running", N_("The booking that you share there is kept, but cannot be served.")),
    ),
}
