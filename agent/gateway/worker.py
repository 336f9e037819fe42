"""`python -m agent.gateway.worker`: one worker of a gateway, started by the process above it (workers.py)."""

from __future__ import annotations

import sys

from agent.gateway.main import run_worker
from agent.gateway.workers import Work
from protos.shared import logs


def main() -> int:
    work = Work.read()
    work.end_with_parent()
    logs.set_up(work.settings.log_level, work.settings.log_format)
    return run_worker(work)


if __name__ == "__main__":
    sys.exit(main())
