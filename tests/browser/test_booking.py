"""Booking in a real browser: by dragging, by the form, from the keyboard, on a phone; what is illegal, what is refused, and
the approver's inbox. Against the made-up scene, 14:28 in Shanghai."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from controller.store import users
from controller.store.tables import Channel, Reservation
from tests.browser.timeline import Timeline, booked, own
from tests.browser.visits import PHONE, WIDE
from tests.console_scene import PASSWORD, Scene, at

pytestmark = [pytest.mark.browser, pytest.mark.slow]
C6 = '.tl-row[data-channel="gpu-a01/c6"]'


def everybody_signs_in(world: Scene) -> None:
    with world.store.write() as db:
        for name in ("maya", "noor", "tomas"):
            users.by_name(db, name).password_hash = users.by_name(db, "lin").password_hash


def test_dragging_over_free_time_books_it(world: Scene, visit: Any) -> None:
    tl = Timeline(visit(WIDE))
    page = tl.page
    tl.drag(tl.point("gpu-a01/c7", "17:00"), tl.point("gpu-a01/c7", "19:30"))
    expect(page.locator("#d-ch")).to_have_value("gpu-a01/c7")
    expect(page.locator("#d-s")).to_have_value("17:00")
    expect(page.locator("#d-e")).to_have_value("19:30")
    expect(page.locator("#d-live")).to_contain_text("Free.")
    expect(page.locator(".is-draft .k-draft")).to_be_visible()
    page.select_option("#d-m", "Qwen3-32B-Q4_K_M")
    page.click("#book-dialog [data-submit]")
    expect(page.locator("[data-toast]")).to_contain_text("Booked")
    expect(page.locator(".is-draft")).to_have_count(0)
    expect(page.locator('.tl-row[data-channel="gpu-a01/c7"] .k-mine')).to_be_visible()
    assert booked(world, "gpu-a01/c7", "lin") == [(at("17:00"), at("19:30"))]
    assert tl.here.complaints == []


def test_a_conflict_is_marked_while_dragging_and_has_three_ways_out(world: Scene, visit: Any) -> None:
    tl = Timeline(visit(WIDE))
    page = tl.page
    tl.drag(tl.point("gpu-a01/c6", "16:30"), tl.point("gpu-a01/c6", "20:30"), drop=False)
    expect(page.locator(".is-draft .k-clash")).to_be_visible()
    expect(page.locator(f"{C6} .is-hit")).to_have_count(1)
    page.mouse.up()
    live = page.locator("#d-live")
    expect(live).to_contain_text("Taken 17:00–18:00 by maya (approved)")
    expect(live.locator(".out b")).to_have_text(["Later, here", "Shorter", re.compile("Another channel: gpu-")])
    expect(page.locator("#book-dialog [aria-invalid=true]")).to_have_id("d-e")  # it runs into the other one
    expect(page.locator("#book-dialog [data-submit]")).to_have_attribute("aria-disabled", "true")
    live.locator(".out", has_text="Shorter").click()
    expect(live).to_contain_text("Free.")
    expect(page.locator("#d-s")).to_have_value("18:00")
    expect(page.locator("#d-e")).to_have_value("20:30")
    expect(page.locator(".is-draft .k-draft")).to_be_visible()  # the draft goes where the form says
    expect(page.locator("#book-dialog [data-submit]")).to_have_attribute("aria-disabled", "false")
    assert tl.here.complaints == []


def test_own_bookings_are_dragged_and_a_refusal_snaps_them_back(world: Scene, visit: Any) -> None:
    booking = own(world)
    tl = Timeline(visit(WIDE))
    page, toast = tl.page, tl.page.locator("[data-toast]")
    tl.drag(tl.point("gpu-a01/c7", "21:00"), tl.point("gpu-a01/c7", "18:00"))
    expect(toast).to_contain_text("Moved to 17:00–19:00")
    assert booked(world, "gpu-a01/c7", "lin") == [(at("17:00"), at("19:00"))]
    toast.get_by_role("button", name="Undo").click()
    expect(toast).to_contain_text("Moved to 20:00–22:00")
    expect(page.locator(f'.bar[data-id="{booking}"]')).to_have_attribute("data-version", "3")
    tl.drag(tl.point("gpu-a01/c7", "21:58"), tl.point("gpu-a01/c7", "23:00"))  # its right edge
    expect(toast).to_contain_text("Moved to 20:00–23:00")
    expect(page.locator(f'.bar[data-id="{booking}"]')).to_have_attribute("data-version", "4")
    tl.drag(tl.point("gpu-a01/c7", "21:00"), tl.point("gpu-a01/c7", "15:30"))  # maya has it
    expect(toast).to_contain_text("Not moved: 14:30–16:00 is taken by maya")
    with world.store.write() as db:  # somebody was faster than the page can know
        db.get(Reservation, booking).version = 9
        db.add(
            Reservation(
                channel_id=world.ids["gpu-a01/c7"], kind="exclusive", starts_at=at("17:00"), ends_at=at("18:00"),
                status="approved", holder_id=world.ids["maya"], booked_by=world.ids["maya"], created_at=world.now,
                approved_at=world.now,
            )
        )  # fmt: skip
        db.execute(Reservation.__table__.update().where(Reservation.id == booking).values(version=4))
    page.evaluate("window.slotserve.hold(true)")  # no live update comes between
    tl.drag(tl.point("gpu-a01/c7", "21:00"), tl.point("gpu-a01/c7", "18:00"))
    expect(toast).to_contain_text("Not moved: Taken 17:00–18:00 by maya (approved)")
    assert booked(world, "gpu-a01/c7", "lin") == [(at("20:00"), at("23:00"))]
    refused = [c for c in tl.here.complaints if "409" not in c]
    assert refused == []


def test_the_timeline_is_walked_and_booked_in_from_the_keyboard(world: Scene, visit: Any) -> None:
    tl = Timeline(visit(WIDE))
    page = tl.page
    page.locator('.lane .bar[tabindex="0"]').focus()
    assert page.locator('.lane .bar[tabindex="0"]').count() == 1  # one stop for Tab
    page.locator(f"{C6} .bar.k-mine").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    row = page.evaluate("document.activeElement.closest('.tl-row').dataset.channel")
    assert row == "gpu-a01/c7"
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator("#d-s")).to_be_focused()
    expect(page.locator("#d-ch")).to_have_value("gpu-a01/c7")
    expect(page.locator("#d-s")).to_have_value("16:00")
    expect(page.locator("#d-live")).to_contain_text("Free.")
    page.fill("#d-e", "18:00")
    expect(page.locator(".is-draft")).to_contain_text("16:00–18:00")
    page.keyboard.press("Enter")
    expect(page.locator("[data-toast]")).to_contain_text("Booked")
    assert booked(world, "gpu-a01/c7", "lin") == [(at("16:00"), at("18:00"))]
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_url("**/bookings")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    assert tl.here.complaints == []


def test_a_phone_has_an_agenda_and_a_sheet_and_both_do_all_of_it(world: Scene, visit: Any) -> None:
    here = visit(PHONE, "zh_Hans")
    page = here.sign_in("lin", PASSWORD, "/timeline")
    assert not page.locator(".tl[data-mounted]").count()
    page.locator(f"{C6} button.k-band").last.click()
    expect(page.locator("#dlg-h")).to_be_focused()
    assert page.evaluate("document.querySelector('#book-dialog').matches(':modal')")
    expect(page.locator("#d-live")).to_contain_text("空闲。")
    page.fill("#d-w", "maya")
    page.keyboard.press("Enter")
    expect(page.locator(".person")).to_have_text("maya")
    page.fill("#d-n", "夜间评测")
    page.click("#book-dialog [data-submit]")
    expect(page.locator("[data-toast]")).to_contain_text("已预约")
    with world.store.read() as db:
        row = db.query(Reservation).filter_by(note="夜间评测").one()
        assert row.participants == [world.ids["maya"]]
    page.goto(here.url + "/bookings")
    page.locator("article", has_text="18:00").get_by_role("button", name="取消").click()
    expect(page.locator("[data-toast]")).to_contain_text("已取消")
    assert here.sideways() == 0
    assert here.complaints == []


def test_a_booking_is_repeated_and_taken_days_are_left_out(world: Scene, visit: Any) -> None:
    tl = Timeline(visit(WIDE))
    page = tl.page
    tl.drag(tl.point("gpu-a01/c6", "18:30"), tl.point("gpu-a01/c6", "19:30"))
    page.fill("#d-s", "17:00")  # maya has it today
    page.fill("#d-e", "18:00")
    page.select_option("#d-rep", "day")
    page.fill("#d-u", "2026-11-22")
    expect(page.locator("#d-live summary")).to_have_text("3 bookings")
    expect(page.locator("#d-live .facts")).to_contain_text("taken, left out")
    page.click("#book-dialog [data-submit]")
    expect(page.locator("[data-toast]")).to_contain_text("Booked, all of them")
    assert len(booked(world, "gpu-a01/c6", "lin")) == 4  # the one that runs, and three


def test_the_longest_extension_is_offered_and_ending_asks_first(world: Scene, visit: Any) -> None:
    here = visit(WIDE)
    page = here.sign_in("lin", PASSWORD, "/bookings")
    running = page.locator("article", has_text="gpu-a01/c6")
    running.locator("summary").click()
    expect(running).to_contain_text("17:00 is the longest: maya’s booking begins then.")
    running.locator("[data-do=extend]", has_text="17:00").click()
    expect(page.locator("[data-toast]")).to_contain_text("Extended to 17:00")
    expect(running).to_contain_text("until 17:00")
    running.get_by_role("button", name="End now").click()
    page.click("#sure [data-sure-no]")
    expect(running).to_contain_text("until 17:00")
    running.get_by_role("button", name="End now").click()
    page.click("#sure [data-sure-yes]")
    expect(page.locator("[data-toast]")).to_contain_text("Ended")
    expect(page.locator("[data-part=mine]")).not_to_contain_text("gpu-a01/c6")
    assert here.complaints == []


def test_requests_are_decided_several_at_once_and_a_rejection_needs_its_reason(world: Scene, visit: Any) -> None:
    everybody_signs_in(world)
    with world.store.write() as db:
        db.get(Channel, world.ids["gpu-b01/g0"]).policy = {"approval": "always"}
    here = visit(WIDE)
    page = here.sign_in("maya", PASSWORD)
    for start in ("18:30", "20:30"):
        page.click('[data-channel="gpu-b01/g0"] [data-book]')
        page.fill("#d-s", start)
        page.fill("#d-e", f"{int(start[:2]) + 1}:00")
        expect(page.locator("#book-dialog [data-submit]")).to_have_text("Ask for approval")
        page.click("#book-dialog [data-submit]")
        expect(page.locator("[data-toast]")).to_contain_text("Asked for approval")
    approver = visit(WIDE)
    page = approver.sign_in("noor", PASSWORD, "/approvals")
    expect(page.locator('.nav a[href="/approvals"] .badge')).to_have_text("3")  # lin's own is the third
    maya = page.locator("article.ap", has_text="maya")
    expect(maya).to_have_count(2)
    maya.first.get_by_role("button", name="Reject …").click()
    expect(page.locator("[data-why-said]")).to_have_text("Say why: the requester reads it")
    page.fill("#why", "too short to be worth a load")
    page.click("[data-decide-all=reject]")
    expect(maya).to_have_count(1)
    page.locator("article.ap input").first.check()
    page.locator("article.ap input").nth(1).check()
    page.click("[data-decide-all=approve]")
    expect(page.locator("[data-part=requests]")).to_contain_text("Nothing waits")
    expect(page.locator('.nav a[href="/approvals"] .badge')).to_have_count(0)
    expect(page.locator("[data-part=decided]")).to_contain_text("too short to be worth a load")
    statuses = [r.status for r in world.store._read().query(Reservation).filter_by(holder_id=world.ids["maya"])]
    assert statuses.count("rejected") == 1
    assert here.complaints == approver.complaints == []
    maya_again = visit(WIDE)
    page = maya_again.sign_in("maya", PASSWORD, "/approvals")
    expect(page.locator("h1")).to_contain_text("Only administrators")


def test_what_cannot_be_is_told_at_its_field_and_nothing_typed_is_lost(world: Scene, visit: Any) -> None:
    here = visit(WIDE)
    page = here.sign_in("lin", PASSWORD)
    page.click('[data-channel="gpu-b01/g0"] [data-book]')
    live, submit = page.locator("#d-live"), page.locator("#book-dialog [data-submit]")
    wrong = page.locator("#book-dialog [aria-invalid=true]")
    expect(live).to_contain_text("Free.")
    page.fill("#d-day", "0500-01-01")
    expect(live).to_contain_text("Start: must lie between the years 1971 and 9998")
    expect(page.locator("#d-day")).to_have_attribute("aria-invalid", "true")
    page.fill("#d-day", "2026-11-18")
    expect(live).to_have_text("This time is already past")  # and no way out that is none
    page.fill("#d-day", "2026-11-20")
    page.fill("#d-s", "10:00")
    page.fill("#d-e", "10:00")
    expect(live).to_contain_text("Start and end are the same")
    expect(page.locator("#d-e")).to_have_attribute("aria-invalid", "true")
    page.fill("#d-e", "")
    expect(submit).to_have_attribute("aria-disabled", "false")
    submit.click()
    expect(live).to_contain_text("Type the start and the end")
    page.fill("#d-e", "12:00")
    expect(live).to_contain_text("Free.")
    expect(wrong).to_have_count(0)
    page.fill("#d-n", "n" * 10_000)
    submit.click()
    expect(live).to_contain_text("Note: may have 4000 characters at most")
    expect(page.locator("#d-n")).to_be_focused()
    expect(page.locator("#d-n")).to_have_value("n" * 10_000)
    page.fill("#d-n", "<b>n</b>")
    expect(submit).to_have_attribute("aria-disabled", "false")
    submit.click()
    expect(page.locator("[data-toast]")).to_contain_text("Booked")
    assert booked(world, "gpu-b01/g0", "lin") == [(at("20 10:00"), at("20 12:00"))]
    assert [c for c in here.complaints if "422" not in c] == []
