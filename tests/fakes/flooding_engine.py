"""The simulated engine, which prints 50 MB/s for as long as the file that FLOOD names is there."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from agent.simulated_engine import main

LINE = b"slot print_timing: id 0 | task 0 | prompt eval time = 123.45 ms / 10 tokens, and so on and on ...\n"
BLOCK = LINE * ((1 << 20) // len(LINE))
PAUSE = len(BLOCK) / 50e6


def flood(while_there: Path) -> None:
    while True:
        if while_there.exists():
            os.write(sys.stdout.fileno(), BLOCK)
        time.sleep(PAUSE)


if __name__ == "__main__":
    if path := os.environ.get("FLOOD"):
        threading.Thread(target=flood, args=(Path(path),), daemon=True).start()
    main()
