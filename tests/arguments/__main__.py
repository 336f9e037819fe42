"""The differential test at length: `python -m tests.arguments [lists]`, 20,000 for each engine unless told otherwise.

An engine whose parser is not here is left out by name. Exit status 1 where a list came out as anything but ours.
"""

from __future__ import annotations

import sys
import time

from tests.arguments import llama
from tests.arguments.compare import Outcome, compare
from tests.arguments.lists import Lists
from tests.arguments.service import RealParser, missing

LISTS = 20_000


def main(count: int) -> int:
    failed = False
    for engine in ("vllm", "sglang"):
        why = missing(engine)
        if why:
            print(f"{engine}: left out: {why}")
            continue
        parser = RealParser(engine)
        lists = Lists(engine, parser.options)
        began = time.monotonic()
        outcome = compare(engine, parser, (lists.draw(number) for number in range(count)))
        parser.close()
        failed = _tell(engine, count, outcome, time.monotonic() - began) or failed
    began = time.monotonic()
    found = llama.compare(count)
    if isinstance(found, str):
        print(f"llama.cpp: left out: {found}")
    else:
        failed = _tell("llama.cpp", count, found, time.monotonic() - began) or failed
    return 1 if failed else 0


def _tell(engine: str, count: int, outcome: Outcome, seconds: float) -> bool:
    how = ", ".join(f"{number} {word}" for word, number in sorted(outcome.counts.items()))
    print(f"{engine}: {count} lists in {seconds:.0f} s: {how}", flush=True)
    for failure in outcome.failures[:20]:
        print(f"  {failure}")
    return bool(outcome.failures)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else LISTS))
