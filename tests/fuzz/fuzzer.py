"""The fuzzer itself: runs cases, counts, and makes what breaks a rule smaller."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from dataclasses import replace

from tests.fuzz.cases import Case
from tests.fuzz.run import Runner

SAY_EVERY = 60.0
SMALLER_SECONDS = 20.0


class Fuzzer:
    """Runs cases, counts, and keeps one small case of every kind of fault."""

    def __init__(self) -> None:
        self.cases = self.forwarded = self.answered = 0
        self.found: dict[str, Case] = {}
        self.times: Counter[str] = Counter()
        self._runner = Runner()
        self._begun = self._said = time.monotonic()

    def run(self, case: Case) -> None:
        self.cases += 1
        fault = self._fault(case)
        if fault:
            self.times[fault] += 1
            if fault not in self.found:
                self.found[fault] = self._smaller(case, fault)
                print(f"FAULT {fault}\n    {self.found[fault]!r},", flush=True)
        now = time.monotonic()
        if now - self._said > SAY_EVERY:
            self._said = now
            self.say()

    def say(self) -> None:
        seconds = time.monotonic() - self._begun
        print(
            f"{self.cases} cases in {seconds:.0f} s ({self.cases / max(seconds, 0.001):.0f}/s), "
            f"{self.answered} answered, {self.forwarded} reached the engine, {len(self.found)} kinds of faults",
            flush=True,
        )

    def _fault(self, case: Case) -> str:
        """What is wrong, in a form that is the same for the same kind; "" where nothing is."""
        try:
            line, engine = self._runner.check(case)
        except Exception as err:  # noqa: BLE001 - whatever it is, it is what is looked for
            self._runner.close()
            self._runner = Runner()
            where = traceback.extract_tb(err.__traceback__)[-1]
            return f"{type(err).__name__} at {where.name}: {str(err)[:60]}"
        self.answered += bool(line.written)
        self.forwarded += bool(engine)
        return ""

    def _smaller(self, case: Case, fault: str) -> Case:
        """The same fault with less: pieces are left out for as long as it stays."""
        end = time.monotonic() + SMALLER_SECONDS

        def same(other: Case) -> bool:
            return (
                time.monotonic() < end
                and self._fault(other).partition(" in ")[0][:60] == fault.partition(" in ")[0][:60]
            )

        for simple in (replace(case, plan=""), replace(case, cuts=())):
            if same(simple):
                case = simple
        size = max(len(case.data), len(case.plan)) // 2
        while size:
            for name in ("data", "plan"):
                place = 0
                while place < len(getattr(case, name)):
                    value = getattr(case, name)
                    other = replace(case, **{name: value[:place] + value[place + size :]})
                    if name == "data":
                        other = replace(other, cuts=tuple(c for c in case.cuts if c < len(other.data)))
                    if same(other):
                        case = other
                    else:
                        place += size
            size //= 2
        return case
