"""`make test-api`: schemathesis for API_SECONDS as an administrator, a third of that as a user; prints what it said."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.openapi.runner import knock


def main(seconds: int) -> int:
    failed = 0
    for who, span in (("root", seconds), ("maya", max(15, seconds // 3))):
        with tempfile.TemporaryDirectory(prefix="slotserve-api-") as folder:
            outcome = knock(Path(folder) / "state", who, span, 100, "--continue-on-failure")
        print(outcome.text, flush=True)
        print(
            f"as {who}: {'clean' if outcome.clean else 'NOT clean'}; answers by status: {outcome.answers}", flush=True
        )
        if not outcome.clean or "Traceback" in outcome.log:
            print(outcome.log)
            failed += 1
    return failed


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 600))
