"""What a person did by mistake, or had typed, is not lost: undo, a session that ends meanwhile, a booking that somebody else
has changed, filters through a reload, and clicks that come twice."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from controller.store.tables import Channel, Node, Preset, Reservation, WebSession
from tests.browser.conftest import SCREENS
from tests.browser.timeline import C7, Timeline, booked, own
from tests.browser.visits import WIDE
from tests.console_scene import NOW, PASSWORD, Scene, at

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_cancelled_booking_comes_back_as_it_was(world: Scene, visit: Any) -> None:
    booking = own(world)
    here = visit(WIDE)
    page, toast = here.sign_in("lin", PASSWORD, "/bookings"), here.page.locator("[data-toast]")
    page.locator(f'[data-do=cancel][data-id="{booking}"]').click()
    expect(toast).to_contain_text("Cancelled")
    assert booked(world, C7, "lin") == []
    toast.get_by_role("button", name="Undo").click()
    expect(toast).to_contain_text("Undone")
    assert booked(world, C7, "lin") == [(at("20:00"), at("22:00"))]
    with world.store.write() as db:
        again = db.query(Reservation).filter_by(note="evaluation", status="approved").one()
        assert (again.id, again.participants) == (booking, [world.ids["maya"]])
        again.status = "cancelled"
    page.goto(f"{here.url}/bookings/{booking}")
    page.get_by_role("button", name="Undo the cancellation").click()
    expect(toast).to_contain_text("Undone")
    assert booked(world, C7, "lin") == [(at("20:00"), at("22:00"))]
    assert here.complaints == []


def test_an_extension_is_taken_back(world: Scene, visit: Any) -> None:
    booking = own(world)
    here = visit(WIDE)
    page, toast = here.sign_in("lin", PASSWORD, "/bookings"), here.page.locator("[data-toast]")
    row = page.locator("article", has_text="20:00")
    row.locator("summary").click()
    row.locator(f'[data-do=extend][data-id="{booking}"]').first.click()
    expect(toast).to_contain_text("Extended to 22:30")
    toast.get_by_role("button", name="Undo").click()
    expect(toast).to_contain_text("Undone")
    assert booked(world, C7, "lin") == [(at("20:00"), at("22:00"))]


def test_what_was_typed_outlives_the_session(world: Scene, visit: Any) -> None:
    tl = Timeline(visit(WIDE))
    page = tl.page
    tl.drag(tl.point(C7, "17:00"), tl.point(C7, "19:30"))
    expect(page.locator("#d-live")).to_contain_text("Free.")
    page.fill("#d-n", "a long thought")
    with world.store.write() as db:
        db.query(WebSession).delete()
    page.click("#book-dialog [data-submit]")
    expect(page.locator("#d-live")).to_contain_text("Your session has ended")
    expect(page.locator("[data-signed-out]")).to_be_visible()
    with page.context.expect_page() as opened:
        page.click("[data-signed-out] a")
    other = opened.value
    other.fill("#l-name", "lin")
    other.fill("#l-password", PASSWORD)
    other.press("#l-password", "Enter")
    other.wait_for_url(tl.here.url + "/")
    other.close()
    page.bring_to_front()
    expect(page.locator("[data-signed-out]")).to_be_hidden()
    expect(page.locator("#d-n")).to_have_value("a long thought")
    page.click("#book-dialog [data-submit]")
    expect(page.locator("[data-toast]")).to_contain_text("Booked")
    assert booked(world, C7, "lin") == [(at("17:00"), at("19:30"))]


def test_a_page_that_is_to_be_made_anew_waits_for_the_dialog(world: Scene, visit: Any) -> None:
    here = visit(WIDE)
    page = here.sign_in("lin", PASSWORD)
    page.evaluate("window.notReloaded = true")
    page.click('[data-channel="gpu-a01/c7"] [data-book]')
    page.fill("#d-n", "a long thought")
    with world.store.write() as db:
        node = db.query(Node).filter_by(name="gpu-a01").one()
        db.add(Channel(node_id=node.id, name="c9", created_at=NOW))
    for _ in range(2):  # the first tells the page of it, the second comes after it has acted on that
        page.wait_for_event("response", lambda r: r.url.endswith("/overview/rows") and r.status == 200)
    assert page.evaluate("window.notReloaded") is True
    expect(page.locator("#d-n")).to_have_value("a long thought")
    page.keyboard.press("Escape")
    expect(page.locator('[data-channel="gpu-a01/c9"]')).to_be_visible()
    assert here.complaints == []


def test_a_booking_that_somebody_changed_meanwhile_says_what_is_different(world: Scene, visit: Any) -> None:
    booking = own(world)
    here = visit(WIDE)
    page, dialog = here.sign_in("lin", PASSWORD, "/bookings"), here.page.locator("#book-dialog")
    page.locator("article", has_text="20:00").get_by_role("button", name="Change").click()
    expect(page.locator("#d-live")).to_contain_text("Free.")
    page.fill("#d-n", "mine")
    with world.store.write() as db:
        row = db.get(Reservation, booking)
        row.version, row.ends_at = row.version + 1, at("23:00")
    dialog.locator("[data-submit]").click()
    expect(page.locator("#d-live")).to_contain_text("Somebody has changed this booking meanwhile")
    expect(page.locator("#d-live")).to_contain_text("When 20:00–22:00 → 20:00–23:00")
    page.get_by_role("button", name="Show it as it is now").click()
    expect(page.locator("#d-e")).to_have_value("23:00")
    expect(page.locator("#d-n")).to_have_value("evaluation")
    page.fill("#d-n", "mine")
    expect(page.locator("#d-live")).to_contain_text("Free.")
    dialog.locator("[data-submit]").click()
    expect(page.locator("[data-toast]")).to_contain_text("Saved")
    with world.store.read() as db:
        row = db.get(Reservation, booking)
        assert (row.note, row.ends_at) == ("mine", at("23:00"))


def test_filters_stay_through_a_reload_and_two_clicks_act_once(world: Scene, visit: Any) -> None:
    here = visit(WIDE)
    page = here.sign_in("lin", PASSWORD)
    page.click('[data-filter="attention"]')
    rows = page.locator(".node li:not([hidden]) > .ch")
    few = rows.count()
    assert few < page.locator(".ch").count()
    page.reload()
    expect(page.locator('[data-filter="attention"]')).to_have_attribute("aria-pressed", "true")
    expect(rows).to_have_count(few)
    page.goto(here.url + "/timeline")
    page.go_back()
    expect(rows).to_have_count(few)
    page.goto(here.url + "/#book=gpu-a01/c7&at=2026-11-19T09:00:00Z")
    page.reload()  # the same page: only the part after # is another
    expect(page.locator("#d-live")).to_contain_text("Free.")
    page.dblclick("#book-dialog [data-submit]")
    expect(page.locator("[data-toast]")).to_contain_text("Booked")
    assert len(booked(world, C7, "lin")) == 1
    assert here.complaints == []


def test_a_booking_on_a_node_that_is_away_is_moved_by_one_click(world: Scene, visit: Any) -> None:
    booking = own(world)
    with world.store.write() as db:
        row = db.get(Reservation, booking)
        row.problem, row.kind, row.model, row.preset = "no contact with node gpu-a01", "exclusive", None, None
    here = visit(WIDE)
    page = here.sign_in("lin", PASSWORD, f"/bookings/{booking}")
    expect(page.locator("[data-part=state]")).to_contain_text("There is no contact with the node at present")
    move = page.locator("[data-part=state] [data-api$='/move']").first
    to = move.inner_text().removeprefix("Move to ").strip()
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SCREENS / "booking-to-be-moved.png"))
    move.click()
    expect(page.locator("[data-toast]")).to_contain_text("Moved")
    expect(page.locator("h1")).to_contain_text(to)
    assert booked(world, C7, "lin") == []
    assert (at("20:00"), at("22:00")) in booked(world, to, "lin")
    assert here.complaints == []


def test_a_preset_that_somebody_saved_meanwhile_is_shown_before_it_is_overwritten(world: Scene, visit: Any) -> None:
    with world.store.read() as db:
        preset = str(db.query(Preset).filter_by(name="long-context").one().id)
    page = visit(WIDE).sign_in("lin", PASSWORD, f"/presets/{preset}")
    page.fill("#p-args", "-c 32768")
    with world.store.write() as db:
        row = db.get(Preset, preset)
        row.args, row.version = ["-c", "1024"], row.version + 1
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("form [data-said]").first).to_contain_text("with: -c 1024. Save again to put yours over it")
    expect(page.locator("#p-args")).to_have_value("-c 32768")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("[data-toast]")).to_contain_text("Preset saved")
    with world.store.read() as db:
        assert db.get(Preset, preset).args == ["-c", "32768"]
