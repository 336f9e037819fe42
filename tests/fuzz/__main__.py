"""The fuzzer: `python -m tests.fuzz [SECONDS] [--seed N] [--atheris]`, `make fuzz FUZZ_SECONDS=3600`.

Draws cases and runs them until the time is over. Whatever breaks a rule is made smaller and printed as a line for
found.py, where it stays as a test. With --atheris the drawing is led by coverage of the gateway's code (atheris must be
installed; it is no part of `make setup`).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("seconds", nargs="?", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first case; each case has the next one")
    parser.add_argument("--atheris", action="store_true", help="led by coverage")
    options = parser.parse_args()
    return _by_coverage(options.seconds) if options.atheris else _by_seed(options.seconds, options.seed)


def _by_seed(seconds: float, seed: int | None) -> int:
    from tests.fuzz.cases import make_case
    from tests.fuzz.fuzzer import Fuzzer

    end = time.monotonic() + seconds
    seed = random.SystemRandom().randrange(2**40) if seed is None else seed
    print(f"first seed {seed}", flush=True)
    fuzzer = Fuzzer()
    while time.monotonic() < end:
        fuzzer.run(make_case(random.Random(seed)))
        seed += 1
    fuzzer.say()
    return 1 if fuzzer.found else 0


def _by_coverage(seconds: float) -> int:
    """libFuzzer ends the process itself, and says how many inputs it ran."""
    import atheris

    with atheris.instrument_imports(include=["agent.gateway", "agent.core"]):
        from tests.fuzz.cases import make_case
        from tests.fuzz.fuzzer import Fuzzer
    fuzzer = Fuzzer()

    def one(data: bytes) -> None:
        fuzzer.run(make_case(_Bytes(atheris.FuzzedDataProvider(data))))

    options = ["-max_len=2000", "-len_control=0", "-print_final_stats=1", f"-artifact_prefix={tempfile.gettempdir()}/"]
    options.append(f"-max_total_time={int(seconds)}")
    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()
    return 0


class _Bytes:
    """Dice that a coverage-guided fuzzer throws."""

    def __init__(self, provider: Any) -> None:
        self._draw = provider.ConsumeIntInRange

    def randrange(self, stop: int, /) -> int:
        return self._draw(0, stop - 1) if stop > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
