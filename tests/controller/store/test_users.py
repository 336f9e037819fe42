"""What a name that nobody has costs whoever asks: as much as one that somebody has."""

from __future__ import annotations

import pytest
from argon2 import extract_parameters
from argon2.exceptions import VerifyMismatchError

from controller.store import users


def test_a_password_of_nobody_is_checked_at_the_full_cost_and_is_never_right() -> None:
    real = users.hash_password("a real password")
    assert real is not None
    assert extract_parameters(users._NOBODY) == extract_parameters(real)
    with pytest.raises(VerifyMismatchError):  # it was computed to the end: a hash that is none is refused sooner
        users._hasher.verify(users._NOBODY, "a real password")
