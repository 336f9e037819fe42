"""Reads files to their end, so that they are in the page cache: `python -m agent.runtime.read_ahead FILE …`

A helper process of agent/ahead.py: last for the processor and the disk; it is ended where memory runs short or the plan
changes. Nothing is kept of what it reads.
"""

from __future__ import annotations

import os
import sys

CHUNK = 4 << 20


def main(files: list[str]) -> None:
    from agent.runtime.idle_io import be_last

    be_last()
    buffer = bytearray(CHUNK)
    for file in files:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while os.readv(descriptor, [buffer]):
                pass
        finally:
            os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1:])
