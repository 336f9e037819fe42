"""Room for connections: the limit of open files that a process begins with is for programs that hold few."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)
STREAM_FILES = 2  # the client's connection and the engine's


def raise_limit() -> int:
    """As many open files as this process may have; how many that is. Children begin with the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as err:
        log.warning("open files stay limited files=%s streams=%s error=%s", soft, soft // STREAM_FILES, err)
        return soft
    return hard
