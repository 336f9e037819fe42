"""schemathesis against the running controller: no 500, no answer that the document does not know, bad data refused.

Bounded here; `make test-api` goes on for as long as one likes. What it found is held by tests of its own beside the API's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.openapi.runner import knock


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("who", "seconds"), [("root", 25), ("maya", 15)])
def test_the_controller_answers_as_its_document_says(tmp_path: Path, who: str, seconds: int) -> None:
    outcome = knock(tmp_path / "state", who, seconds, 5)
    assert outcome.clean, outcome.text
    assert "Traceback" not in outcome.log, outcome.log
    assert sum(outcome.answers.values()) > 50, "it did hardly anything"
    assert outcome.answers.get(200, 0) > 10, "next to nothing was answered well"
