"""Booking with a finger on a tablet: held still it takes hold and drags, moved at once it scrolls, and a tap opens the form."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from controller.store.tables import Reservation
from tests.browser.timeline import Timeline, booked
from tests.browser.visits import Visitor
from tests.console_scene import Scene, at

pytestmark = [pytest.mark.browser, pytest.mark.slow]
TABLET = {"width": 1180, "height": 820}
DRAFT = ".is-draft"


class Finger:
    """One finger, as the browser's own input events."""

    def __init__(self, here: Visitor) -> None:
        self._page, self._cdp = here.page, here.context.new_cdp_session(here.page)
        self._at = (0.0, 0.0)

    def _send(self, kind: str, *points: tuple[float, float]) -> None:
        touch = [{"x": round(x, 1), "y": round(y, 1)} for x, y in points]
        self._cdp.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touch})

    def down(self, place: tuple[float, float]) -> None:
        self._at = place
        self._send("touchStart", place)

    def move(self, place: tuple[float, float], steps: int = 6) -> None:
        (x, y), (to_x, to_y) = self._at, place
        for i in range(1, steps + 1):
            self._send("touchMove", (x + (to_x - x) * i / steps, y + (to_y - y) * i / steps))
        self._at = place

    def up(self) -> None:
        self._send("touchEnd")


@pytest.fixture
def tablet(visit: Any) -> tuple[Timeline, Finger]:
    here = visit(TABLET, has_touch=True, is_mobile=True)
    tl = Timeline(here)
    return tl, Finger(here)


def test_a_finger_that_is_held_drags_over_free_time(world: Scene, tablet: tuple[Timeline, Finger]) -> None:
    tl, finger = tablet
    page = tl.page
    finger.down(tl.point("gpu-a01/c7", "17:00"))
    expect(page.locator(f"{DRAFT} .k-draft")).to_be_visible()  # nothing has moved yet: it has been held
    finger.move(tl.point("gpu-a01/c7", "19:30"))
    finger.up()
    expect(page.locator("#d-ch")).to_have_value("gpu-a01/c7")
    expect(page.locator("#d-s")).to_have_value("17:00")
    expect(page.locator("#d-e")).to_have_value("19:30")
    expect(page.locator("#d-live")).to_contain_text("Free.")
    page.select_option("#d-m", "Qwen3-32B-Q4_K_M")
    page.tap("#book-dialog [data-submit]")
    expect(page.locator("[data-toast]")).to_contain_text("Booked")
    assert booked(world, "gpu-a01/c7", "lin") == [(at("17:00"), at("19:30"))]
    assert tl.here.complaints == []


def test_a_finger_that_moves_at_once_scrolls_and_a_tap_opens_the_form(
    world: Scene, tablet: tuple[Timeline, Finger]
) -> None:
    tl, finger = tablet
    page = tl.page
    page.evaluate("document.body.style.minHeight = '3000px'")
    before = page.evaluate("scrollY")
    x, y = tl.point("gpu-a01/c7", "17:00")
    finger.down((x, y))
    finger.move((x, y - 200))
    finger.up()
    page.wait_for_function("before => scrollY > before", arg=before)
    page.wait_for_timeout(600)  # longer than a finger has to be held
    expect(page.locator(DRAFT)).to_have_count(0)
    page.goto(f"{tl.here.url}/timeline?view=day")  # at its top again, whatever is left of the scrolling
    page.wait_for_selector(".tl[data-mounted]")
    tl.here.painted()
    page.touchscreen.tap(*tl.point("gpu-a01/c7", "17:07"))
    expect(page.locator("#d-ch")).to_have_value("gpu-a01/c7")
    expect(page.locator("#d-s")).to_have_value("17:00")
    assert tl.here.complaints == []


@pytest.mark.parametrize(
    ("grip", "to", "window"), [("21:00", "18:00", ("17:00", "19:00")), ("21:58", "23:00", ("20:00", "23:00"))]
)
def test_own_bookings_are_moved_and_made_longer_by_a_finger(
    world: Scene, tablet: tuple[Timeline, Finger], grip: str, to: str, window: tuple[str, str]
) -> None:
    with world.store.write() as db:
        row = db.query(Reservation).filter_by(holder_id=world.ids["lin"], status="pending").one()
        row.status, row.starts_at, row.ends_at = "approved", at("20:00"), at("22:00")
        row.channel_id, row.kind, row.model = world.ids["gpu-a01/c7"], "model", "Qwen3-32B-Q4_K_M"
    tl, finger = tablet
    tl.page.reload()
    tl.page.wait_for_selector(".tl[data-mounted]")
    finger.down(tl.point("gpu-a01/c7", grip))
    expect(tl.page.locator(".is-lifted")).to_be_visible()
    finger.move(tl.point("gpu-a01/c7", to))
    finger.up()
    expect(tl.page.locator("[data-toast]")).to_contain_text(f"Moved to {window[0]}–{window[1]}")
    assert booked(world, "gpu-a01/c7", "lin") == [(at(window[0]), at(window[1]))]
    assert tl.here.complaints == []
