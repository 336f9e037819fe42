"""What can go wrong on a node that a person must read about; every message names the remedy."""

from __future__ import annotations


class AgentError(Exception):
    """Base of what `slotserve-agent` prints without a traceback (exit status 1)."""


class NotEnrolled(AgentError):
    """The node has no certificate yet."""


class EnrolmentFailed(AgentError):
    """The controller did not give a certificate."""


class PlanRefused(ValueError):
    """A pushed plan cannot be used; the reason goes back to the controller and the last good plan stays in force."""
