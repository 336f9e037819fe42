"""Sends what lies in the outbox: claimed, looked at again, sent, marked; retried at growing intervals, then given up.

A thread of its own, woken by commits. Every controller may run one: a claim is a conditional update (store/outbox.py).
Outside it is "at least once, with an id that stays": a crash between sending and marking sends a message again, and
the mail's Message-ID or the webhook's X-SlotServe-Delivery tells the receiver that it has it already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from controller.notify import delivery
from controller.notify.delivery import Letter
from controller.notify.still import pointless
from controller.notify.tell import Event, tell
from controller.notify.ways.mail import Mailer
from controller.notify.ways.message import NotDelivered, Refused
from controller.settings import Settings
from controller.store import outbox, users
from controller.store.session import Store, Write, waits
from controller.store.tables import NotificationTarget
from controller.vault import Vault

log = logging.getLogger(__name__)
RETRY_SECONDS = (30, 60, 120, 300, 900, 1800, 3600, 7200, 14400, 28800, 43200)
BATCH = 40
SIDE_BY_SIDE = 4
POLL_SECONDS = 5.0  # what another process has written
PAUSE_SECONDS = 0.2  # many commits, one look
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class _Taken:
    """A claimed message: which attempt this is, and until when it is ours."""

    id: str
    kind: str
    way: str
    address: str
    attempt: int
    until: int
    letter: Letter


class Sender:
    """`send` is what sends one letter (tests put their own in)."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Callable[[], int],
        vault: Vault,
        send: Callable[..., None] = delivery.send,
    ) -> None:
        self._store, self._settings, self._clock, self._send = store, settings, clock, send
        self._vault = vault
        self._due, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="messages", daemon=True)
        self.sent = 0

    def start(self) -> None:
        self._store.on_commit(lambda _: self._due.set())
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> None:
        """What is being sent may end; the rest stays for the next start."""
        self._end.set()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def step(self) -> int:
        """Sends what is due now; how many messages were taken."""
        taken = self._take()
        if not taken:
            return 0
        mails = [t for t in taken if t.way == "email"]
        with ThreadPoolExecutor(SIDE_BY_SIDE, "message") as pool:
            jobs: list[Future[Any]] = [pool.submit(self._mails, mails)] if mails else []
            jobs += [pool.submit(self._one, t) for t in taken if t.way != "email"]
        for job in jobs:
            job.result()
        return len(taken)

    def _run(self) -> None:
        while not self._end.is_set():
            self._due.clear()
            wait = POLL_SECONDS
            try:
                while not self._end.is_set() and self.step():
                    pass
                wait = self._wait()
            except Exception as err:
                if not waits(log, "messages wait", err):
                    log.exception("messages could not be looked at; trying again")
            self._due.wait(wait)
            self._end.wait(PAUSE_SECONDS)

    def _wait(self) -> float:
        with self._store.read() as session:
            due = outbox.next_due(session)
        return POLL_SECONDS if due is None else min(POLL_SECONDS, max(0.0, (due - self._clock()) / 1000))

    def _take(self) -> list[_Taken]:
        """Claims what is due; drops what has become pointless. One short transaction, and none where nothing is due."""
        now = self._clock()
        with self._store.read() as session:
            if not outbox.due(session, now, 1):
                return []
        taken = []
        with self._store.write() as session:
            for row in outbox.due(session, now, BATCH):
                attempt = outbox.claim(session, row, now)
                if attempt is None:
                    continue
                why = pointless(session, row, now)
                letter = why or delivery.letter(session, self._settings, self._vault, row)
                if isinstance(letter, str):
                    outbox.settle(session, row.id, attempt, state="dropped", error=letter)
                    log.info("message dropped id=%s kind=%s way=%s why=%r", row.id, row.kind, row.way, letter)
                    continue
                until = now + outbox.LEASE_MS
                taken.append(_Taken(row.id, row.kind, row.way, row.address, attempt, until, letter))
        return taken

    def _mails(self, mails: list[_Taken]) -> None:
        """One connection for all; where there is none, none is tried again for the rest."""
        broken = ""
        with Mailer(self._settings) as mailer:
            for one in mails:
                if broken:
                    self._failed(one, broken, False)
                else:
                    err = self._one(one, mailer)
                    broken = str(err) if err is not None and mailer.broken else ""

    def _one(self, one: _Taken, mailer: Mailer | None = None) -> NotDelivered | None:
        """One try, and its mark."""
        now = self._clock()
        if now > one.until - outbox.LEASE_MS // 3:  # it took so long that it may soon be somebody else's
            return None
        try:
            self._send(self._settings, one.letter, now, mailer)
        except NotDelivered as err:
            self._failed(one, str(err), isinstance(err, Refused))
            return err
        except Exception as err:
            log.exception("message could not be made id=%s kind=%s way=%s", one.id, one.kind, one.way)
            self._failed(one, f"a fault of SlotServe itself: {type(err).__name__} (see the controller's log)", False)
            return None
        with self._store.write() as session:
            outbox.settle(session, one.id, one.attempt, state="sent", sent_at=self._clock(), error="")
        self.sent += 1
        log.info("message sent id=%s kind=%s way=%s attempt=%s", one.id, one.kind, one.way, one.attempt)
        return None

    def _failed(self, one: _Taken, why: str, for_good: bool) -> None:
        now = self._clock()
        give_up = for_good or one.attempt >= self._settings.notify_attempts
        wait = RETRY_SECONDS[min(one.attempt, len(RETRY_SECONDS)) - 1]
        with self._store.write() as session:
            values = {"state": "failed", "due_at": now} if give_up else {"due_at": now + wait * 1000}
            if not outbox.settle(session, one.id, one.attempt, error=why[:1000], **values):
                return
            if give_up and one.kind != "delivery_failed":
                self._tell(session, one, why, now)
        word = "given up" if give_up else f"tried again in {wait} s"
        log.warning(
            "message failed id=%s kind=%s way=%s attempt=%s %s why=%r",
            one.id,
            one.kind,
            one.way,
            one.attempt,
            word,
            why,
        )

    def _tell(self, session: Write, one: _Taken, why: str, now: int) -> None:
        """Administrators hear of it, once a day and place."""
        target = session.get(NotificationTarget, one.address)
        name = target.name if target else one.letter.name
        facts = {"target": f"{one.way}, {name}", "error": why, "attempts": one.attempt}
        event = Event(f"delivery:{one.way}:{one.address}:{now // DAY_MS}", "delivery_failed", one.way, now, facts)
        tell(session, event, users.administrators(session))
