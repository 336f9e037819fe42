"""Which model's files are worth having in the page cache before the next switch, and whether there is room. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.types import Launch, Millis, Seconds, Step

AHEAD: Seconds = 600.0  # steps that begin later are not prepared yet
LEAST_FREE = 2 << 30
FREE_SHARE = 0.1  # of all memory


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. `available`: as the kernel reckons, free and easily freed; `mapped`: of that, files that engines have in
    use (a model that runs on the processor reads its own file all the time)."""

    total: int
    available: int
    mapped: int = 0

    @property
    def spare(self) -> int:
        """What may be filled with files without anybody noticing."""
        return self.available - self.mapped - max(LEAST_FREE, round(FREE_SHARE * self.total))


def next_model(steps: tuple[Step, ...], running: str | None, now: Millis) -> Launch | None:
    """The first launch, of the step in force and those within AHEAD, of another model than the one that runs."""
    current = [s for s in steps if s.at <= now][-1:]
    coming = [s for s in steps if now < s.at <= now + round(AHEAD * 1000)]
    for step in (*current, *coming):
        if step.target is not None and step.target.model != running:
            return step.target
    return None
