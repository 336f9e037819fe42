"""Against a real controller, two nodes with agents and gateways, simulated engines: a person who was never here gets from
the log-in to a call that works in at most eight actions; a load is watched, and a failure with its fallback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import CHANNELS, Fleet
from tests.browser.visits import WIDE
from tests.system.conftest import sim_model

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.system]
WAIT = 60_000


@pytest.fixture(autouse=True)
def nothing_runs_after_it(fleet: Fleet) -> Iterator[None]:
    yield
    for booking in fleet.get("/reservations?status=running")["items"]:
        fleet.post(f"/reservations/{booking['id']}/end", {"reason": "the next test begins"})


class Actions:
    """Counts what the person does: a field filled, a thing pressed."""

    def __init__(self, page: Any) -> None:
        self.page, self.done = page, list[str]()

    def fill(self, what: str, field: str, text: str) -> None:
        self.done.append(what)
        self.page.fill(field, text)

    def press(self, what: str, thing: str) -> None:
        self.done.append(what)
        self.page.locator(thing).first.click()


def test_from_the_log_in_to_a_call_that_works_in_eight_actions(fleet: Fleet, visit: Any) -> None:
    here = visit(WIDE, url=fleet.url, permissions=["clipboard-read", "clipboard-write"])
    page = here.page
    page.goto(fleet.url)
    do = Actions(page)
    do.fill("type the name", "#l-name", "maya")
    do.fill("type the password", "#l-password", "maya-password")
    do.press("sign in", "[type=submit]")
    page.wait_for_selector(".top [data-book]")
    do.press("Book", ".top [data-book]")
    expect(page.locator("#d-live .note--ok")).to_be_visible(
        timeout=WAIT
    )  # a channel, a model and an hour are filled in
    do.press("Book, in the dialog", "#book-dialog [data-submit]")
    expect(page.locator("[data-toast]")).to_contain_text("Booked", timeout=WAIT)
    do.press("How to call it", "[data-toast] [data-more]")
    page.wait_for_selector("[data-howto]")
    do.press("Make an API key", "[data-make-key]")
    expect(page.locator("[data-howto] [data-key]")).to_contain_text("sk-ss-", timeout=WAIT)
    do.press("Copy", "[data-copy]")
    expect(page.locator("[data-toast]")).to_contain_text("Copied")
    assert len(do.done) <= 8, do.done
    command = page.evaluate("navigator.clipboard.readText()")
    assert "$" not in command  # the key stands in it: it works as it is

    def called() -> Any:
        pasted = ["bash", "-c", command + " -s -w '\\n%{http_code}'"]
        told = subprocess.run(pasted, capture_output=True, text=True, timeout=60, check=False)
        return told.stdout if told.stdout.endswith("\n200") else None

    answer = fleet.until(called, 60, "the copied call is answered")
    assert "choices" in answer
    assert here.complaints == []


def test_a_load_is_watched_and_a_failure_with_its_fallback(fleet: Fleet, visit: Any) -> None:
    here = visit(WIDE, url=fleet.url)
    page = here.sign_in("tomas", "tomas-password")
    row = page.locator('[data-channel="n1/half"]')
    page.evaluate("window.notReloaded = true")
    fleet.until_ready("base", channel="half")
    sim_model(fleet.folder, "slow", load_seconds=8)
    sim_model(fleet.folder, "broken", crash_at_load=1)
    for name in ("slow", "broken"):
        fleet.until_known(name, *CHANNELS)
    booking = fleet.book("slow", 0, 3600, who="tomas", channel="half")
    expect(row.locator(".pill")).to_have_text("Loading", timeout=WAIT)
    expect(row.locator("progress")).to_be_visible()
    expect(row.locator(".pill")).to_have_text("Ready", timeout=WAIT)
    expect(row.locator(".ch-why")).to_have_text("Your booking")
    fleet.post(f"/reservations/{booking['id']}/end", {}, who="tomas")
    booking = fleet.book("broken", 0, 3600, who="tomas", channel="half")
    expect(row.locator(".pill")).to_have_text("Fallback", timeout=WAIT)
    expect(row.locator(".ch-why")).to_contain_text("The default answers for you while broken waits for its next try")
    expect(row.locator(".note--bad")).to_contain_text("Next try at", timeout=WAIT)
    page.goto(f"{fleet.url}/timeline")
    expect(page.locator('.tl-row[data-channel="n1/half"] .k-fail')).to_be_visible(timeout=WAIT)
    fleet.post(f"/reservations/{booking['id']}/end", {}, who="tomas")
    expect(page.locator('.tl-row[data-channel="n1/half"] .bar.k-fail')).to_have_count(0, timeout=WAIT)
    assert here.complaints == []
