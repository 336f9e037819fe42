"""`python -m tests.histories [COUNT]`: thousands of histories (the suite runs some dozens)."""

import logging
import sys

from tests.histories.test_histories import run

if __name__ == "__main__":
    logging.disable(logging.ERROR)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    run(count)
    print(f"{count} histories: every promise was kept")
