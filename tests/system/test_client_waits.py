"""The official OpenAI client across a real switch: it waits for as long as it is told, and is served."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.cluster import Cluster
from tests.system.conftest import sim_model

pytestmark = pytest.mark.system
LOAD_SECONDS = 3
MESSAGES = [{"role": "user", "content": "hello"}]


def watched(c: Cluster, retries: int) -> tuple[Any, list[httpx.Response]]:
    """A client, and every answer that it gets."""
    answers: list[httpx.Response] = []
    http = httpx.Client(event_hooks={"response": [answers.append]})
    return c.openai("tomas", max_retries=retries, http_client=http), answers


def switch(c: Cluster, folder: Path, name: str, load_seconds: float) -> None:
    """Begins to load a model that takes so long, and known to take so long; back when the old one answers no more."""
    sim_model(folder, name, load_seconds=load_seconds)
    c.until(lambda: len(c.get("/models")["items"]) == 3, 20, "the new file is noticed")
    c.set_default(name)
    c.until(lambda: c.channel()["phase"] == "loading", 20, "it loads")


def test_it_waits_and_succeeds(sim: Cluster, sim_folder: Path) -> None:
    client, answers = watched(sim, retries=5)  # before: on a busy machine its import takes as long as the load
    switch(sim, sim_folder, "unhurried", LOAD_SECONDS)
    begun = time.monotonic()
    answer = client.chat.completions.create(model="auto", messages=MESSAGES, max_tokens=4)
    waited = time.monotonic() - begun
    assert answer.model == "unhurried"
    *refused, served = answers
    assert [a.status_code for a in refused] == [503] * len(refused)
    assert len(refused) >= 1
    assert served.status_code == 200
    assert {a.json()["error"]["code"] for a in refused} <= {"model_loading", "model_switching"}
    told = [int(a.headers["retry-after"]) for a in refused]
    assert waited >= sum(told), "it waited each time for what it was told"
