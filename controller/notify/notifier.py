"""The two threads that tell people: one looks at what has come due, one sends what lies in the outbox."""

from __future__ import annotations

from controller import vault
from controller.context import Context
from controller.notify.rounds import Rounds
from controller.notify.sender import Sender


class Notifier:
    """Only the controller that leads looks at what is due; every one may send."""

    def __init__(self, ctx: Context) -> None:
        self.rounds = Rounds(ctx, ctx.leads)
        self.sender = Sender(ctx.store, ctx.settings, ctx.clock, vault.of(ctx))

    def start(self) -> None:
        self.rounds.start()
        self.sender.start()

    def stop(self) -> None:
        self.rounds.stop()
        self.sender.stop()
