"""The sentences of every message. Whole sentences with %(name)s places; which advice is given depends on the facts.

`when` of an advice is the name of a fact: given where the fact is there, "!name" where it is not, "" always.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.words import N_


@dataclass(frozen=True, slots=True)
class Message:
    """`link`: a key of wording.LINKS."""

    title: str
    lead: str
    advice: tuple[tuple[str, str], ...] = ()
    link: str = "booking"


BOOK_ANEW = N_("Take another time, or another channel that has the model.")
NOTHING_ELSE = N_("No other channel that has the model is free at that time.")
UNSOUGHT = N_("Your booking's page offers other channels that fit.")
ONE_RAN = N_("The one that was running has been ended; its channel goes on to what comes next.")

MESSAGES: dict[str, Message] = {
    "requested": Message(
        N_("%(holder)s asks for %(what)s on %(channel)s, %(window)s"),
        N_(
            "%(holder)s asks for a booking that needs an approver's word. Until somebody decides, it keeps "
            "this time from others."
        ),
        (("", N_("Approve or reject it; %(holder)s is told at once.")),),
        "approvals",
    ),
    "approved": Message(
        N_("Approved: %(what)s on %(channel)s, %(window)s"),
        N_("%(by)s has approved your booking."),
        (("", N_("It begins by itself.")),),
    ),
    "rejected": Message(
        N_("Rejected: %(what)s on %(channel)s, %(window)s"),
        N_("%(by)s has rejected your request. The time is free again."),
        (("", BOOK_ANEW),),
        "timeline",
    ),
    "expired": Message(
        N_("Nobody decided in time: %(what)s on %(channel)s, %(window)s"),
        N_(
            "Your request was neither approved nor rejected before its time was over. It has expired, and "
            "nothing was loaded for you."
        ),
        (("", N_("Book again, and ask an approver directly if it is urgent.")),),
        "timeline",
    ),
    "booked": Message(
        N_("Booked for you: %(what)s on %(channel)s, %(window)s"),
        N_("%(by)s has booked this for you."),
        (
            ("pending", N_("It still waits for an approver.")),
            ("!pending", N_("It begins by itself. You can edit or cancel it like any booking of yours.")),
        ),
    ),
    "changed": Message(
        N_("Changed: %(what)s on %(channel)s, %(window)s"),
        N_("%(by)s has changed your booking. This is what it is now."),
        (("pending", N_("In this form it waits for an approver again.")),),
    ),
    "given": Message(
        N_("No longer yours: %(what)s on %(channel)s, %(window)s"),
        N_("%(by)s has given your booking to %(holder)s."),
        (("", BOOK_ANEW),),
        "timeline",
    ),
    "received": Message(
        N_("Now yours: %(what)s on %(channel)s, %(window)s"),
        N_("%(by)s has made this booking yours."),
    ),
    "cancelled": Message(
        N_("Cancelled: %(what)s on %(channel)s, %(window)s"),
        N_("%(by)s has cancelled your booking."),
        (("one_ran", ONE_RAN), ("", BOOK_ANEW)),
        "timeline",
    ),
    "uncancelled": Message(
        N_("Not cancelled after all: %(what)s on %(channel)s, %(window)s"),
        N_("%(by)s has taken the cancellation of your booking back: it stands as it was."),
        (("pending", N_("It still waits for an approver.")), ("!pending", N_("It begins by itself."))),
    ),
    "ended": Message(
        N_("Ended early: %(what)s on %(channel)s"),
        N_("%(by)s has ended your running booking. The channel goes on to what comes next."),
        (("", BOOK_ANEW),),
        "timeline",
    ),
    "starts_soon": Message(
        N_("Starts at %(start_time)s: %(what)s on %(channel)s"),
        N_("Your booking starts at %(start_time)s."),
        (
            ("model", N_("The model is loaded ahead of the start; you are told when it is ready.")),
            ("!model", N_("At the start nothing is loaded any more, and the card is yours.")),
            ("", N_("If you do not need it, cancel it: somebody else may be waiting.")),
        ),
    ),
    "ready": Message(
        N_("Ready: %(what)s on %(channel)s until %(end_time)s"),
        N_("Your model is loaded and answers you until %(end_time)s."),
    ),
    "ready_card": Message(
        N_("The card is yours: %(channel)s until %(end_time)s"),
        N_("Nothing is loaded on this channel; its GPUs are yours until %(end_time)s."),
        (("", N_("End your processes before then: what stays blocks the channel for whoever comes next.")),),
    ),
    "ends_soon": Message(
        N_("Ends at %(end_time)s: %(what)s on %(channel)s"),
        N_("Your booking ends at %(end_time)s. Requests that run then are let finish only if the same model stays."),
        (
            ("next_follows", N_("Another booking follows at once, so it cannot be extended.")),
            ("next_time", N_("The next booking begins at %(next_time)s; until then you can extend it.")),
            ("free_after", N_("Nobody has booked the time after it: you can extend it.")),
        ),
    ),
    "card_in_use_soon": Message(
        N_("Your processes are still on %(channel)s, which ends at %(end_time)s"),
        N_("Your booking of the bare card ends at %(end_time)s, and these processes are still on its GPUs."),
        (
            ("", N_(
                "End them before %(end_time)s, or extend the booking. What stays blocks the channel for whoever "
                "comes next."
            )),
        ),
    ),
    "card_in_use_mine": Message(
        N_("Your processes still hold the card of %(channel)s"),
        N_(
            "Your booking of the bare card is over, and these processes are still on its GPUs. Nothing can "
            "be started there until they are gone."
        ),
        (("", N_("End them now. The administrators have been told, and so is the next holder.")),),
        "channel",
    ),
    "card_in_use_next": Message(
        N_("The card of your booking on %(channel)s is still in use by %(left_by)s"),
        N_(
            "%(left_by)s's booking of the bare card is over, but these processes are still on its GPUs. "
            "Your booking cannot be served until they are gone."
        ),
        (("", N_("Ask %(left_by)s or an administrator to end them, or take another channel.")),),
    ),
    "card_in_use_admin": Message(
        N_("%(left_by)s's processes still hold the card of %(channel)s"),
        N_(
            "%(left_by)s's booking of the bare card is over, but these processes are still on its GPUs. "
            "Nothing can be started there until they are gone."
        ),
        (("", N_("SlotServe never ends other people's processes by itself; that is for you to decide.")),),
        "channel",
    ),
    "failed": Message(
        N_("Failed: %(what)s on %(channel)s"),
        N_("%(what)s cannot be run on %(channel)s."),
        (
            ("default", N_(
                "Meanwhile the channel's default, %(default)s, answers in its place, while the booking runs to its "
                "holder and participants alone."
            )),
            ("!default", N_("Nothing answers on this channel until a try succeeds.")),
            ("", N_(
                "It is tried again by itself, at growing intervals. An edited preset is tried at once, and so "
                "is Retry now."
            )),
        ),
        "channel",
    ),
    "recovered": Message(
        N_("Runs again: %(what)s on %(channel)s"),
        N_("%(what)s runs again on %(channel)s; the failure is over."),
        (),
        "channel",
    ),
    "blocked": Message(
        N_("Blocked: %(channel)s"),
        N_("Nothing can be started on %(channel)s."),
        (
            ("left_by", N_("The bare card was booked by %(left_by)s before; most likely the processes are theirs.")),
            ("", N_(
                "SlotServe never ends other people's processes by itself. It goes on by itself as soon as they "
                "are gone."
            )),
        ),
        "channel",
    ),
    "node_lost": Message(
        N_("No contact with node %(node)s"),
        N_(
            "Nothing has been heard of node %(node)s since %(since)s. If it runs, it goes on with the "
            "timetable it has."
        ),
        (("", N_("Look at the machine and its network; slotserve-agent status on it says what it does.")),),
        "nodes",
    ),
    "node_lost_running": Message(
        N_("No contact with node %(node)s, where your booking runs"),
        N_(
            "Nothing has been heard of node %(node)s since %(since)s. If only the network between is gone, "
            "your model goes on answering there."
        ),
        (
            ("others", N_("You can take one of the free channels above instead.")),
            ("nothing_else", NOTHING_ELSE),
            ("unsought", UNSOUGHT),
            ("", N_("Your booking stays where it is unless you cancel it. The administrators have been told.")),
        ),
    ),
    "node_lost_before": Message(
        N_("No contact with node %(node)s, where your booking starts at %(start_time)s"),
        N_(
            "Nothing has been heard of node %(node)s since %(since)s. If it is not back by %(start_time)s, "
            "your booking may not be served."
        ),
        (
            ("others", N_("You can take one of the free channels above instead.")),
            ("nothing_else", NOTHING_ELSE),
            ("unsought", UNSOUGHT),
            ("", N_("Your booking stays where it is unless you cancel it. The administrators have been told.")),
        ),
    ),
    "node_back": Message(
        N_("Node %(node)s is back"),
        N_("Node %(node)s is in contact again."),
        (),
        "nodes",
    ),
    "maintenance": Message(
        N_("Maintenance of node %(node)s, where your booking starts at %(start_time)s"),
        N_(
            "Node %(node)s is in maintenance until %(until)s, so your booking may not be served at its start."
        ),
        (
            ("others", N_("You can move it to one of the free channels above, with one click.")),
            ("nothing_else", NOTHING_ELSE),
            ("unsought", UNSOUGHT),
            ("", N_("Your booking stays where it is unless you move or cancel it.")),
        ),
    ),
    "maintenance_over": Message(
        N_("Node %(node)s takes bookings again: %(what)s, %(window)s"),
        N_("The maintenance of node %(node)s is over. Your booking begins as it was made."),
    ),
    "channel_gone": Message(
        N_("%(channel)s is no longer there"),
        N_("%(text)s"),
        (
            ("running", N_("Your booking there ends with it.")),
            ("!running", N_("Your booking there is kept, but cannot be served.")),
            ("", N_("Other channels may be free: book there, and cancel this one.")),
        ),
    ),
    "slot_free": Message(
        N_("Free: %(what)s on %(channel)s, %(window)s"),
        N_("A slot that you wait for has become free. It is not kept for you: whoever books it first has it."),
        (),
        "timeline",
    ),
    "delivery_failed": Message(
        N_("Messages do not get through: %(target)s"),
        N_("Messages by this way have failed for good, after %(attempts)s tries at growing intervals."),
        (("", N_("Look at the list of messages: once the cause is mended, each can be sent again.")),),
        "delivery",
    ),
    "test": Message(
        N_("A test from SlotServe"),
        N_("It works: this is how messages from SlotServe reach you here."),
        (),
        "settings",
    ),
}  # fmt: skip
