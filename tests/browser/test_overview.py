"""The console in a real browser: log in, book through the dialog, watch states change without a reload, extend, end;
languages, themes, keyboard; nothing the content policy forbids, and no sideways scrolling."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from controller.fleet.live import LiveChannel
from controller.store import users
from controller.store.tables import Channel
from tests.browser.visits import PHONE, WIDE
from tests.console_scene import NOW, PASSWORD, Scene

pytestmark = [pytest.mark.browser, pytest.mark.slow]
G0 = '[data-channel="gpu-b01/g0"]'


def say(world: Scene, channel: str, now: LiveChannel) -> None:
    """What a node reports of one of its channels; the others stay."""
    node, _, name = channel.partition("/")
    world.live.update(node, channels={**world.live.node(node).channels, name: now})


def test_book_watch_extend_and_end_without_a_reload(world: Scene, visit: Any) -> None:
    here = visit(WIDE)
    page = here.sign_in("lin", PASSWORD)
    page.evaluate("window.notReloaded = true")
    page.click(f"{G0} [data-book]")
    dialog = page.locator("#book-dialog")
    expect(page.locator("#d-ch")).to_have_value("gpu-b01/g0")
    page.select_option("#d-m", "GLM-4.5-Air-Q4_K_M")
    expect(page.locator("#d-live")).to_contain_text("Ready at about")
    page.click("#book-dialog [data-submit]")
    expect(dialog).to_be_hidden()
    expect(page.locator("[data-toast]")).to_contain_text("Booked")
    mine = page.locator(".yours .slot", has_text="gpu-b01/g0")
    expect(mine).to_contain_text("until 15:29")
    expect(page.locator(f"{G0} .ch-why")).to_have_text("Your booking")
    loading = LiveChannel(
        "loading",
        running="g",
        running_model="GLM-4.5-Air-Q4_K_M",
        load_started_at=NOW - 20_000,
        load_estimated_seconds=55.0,
    )
    say(world, "gpu-b01/g0", loading)
    expect(page.locator(f"{G0} .pill")).to_have_text("Loading")
    expect(page.locator(G0)).to_contain_text(re.compile(r"of about 55 s · ready at about 14:28"))
    say(world, "gpu-b01/g0", LiveChannel("ready", running="g", running_model="GLM-4.5-Air-Q4_K_M", in_flight=0))
    expect(page.locator(f"{G0} .pill")).to_have_text("Ready")
    mine.locator("[data-do=extend]").click()
    expect(mine).to_contain_text("until 15:59")
    mine.locator("[data-do=end]").click()
    page.click("#sure [data-sure-yes]")
    expect(mine).to_have_count(0)
    expect(page.locator(f"{G0} .ch-why")).to_contain_text("open to all")
    assert page.evaluate("window.notReloaded") is True
    assert here.complaints == []


def test_a_taken_time_says_by_whom_and_offers_ways_out(visit: Any) -> None:
    here = visit(WIDE, "zh_Hans")
    page = here.sign_in("lin", PASSWORD)
    page.click('[data-channel="gpu-b01/g1"] [data-book]')
    live = page.locator("#d-live")
    expect(live).to_contain_text("14:00–16:00 已被占用：tomas（进行中）")
    expect(live.locator(".out")).to_have_count(3)
    assert not re.search(r"\d{4}-\d\d-\d\dT|reload|booking", live.inner_text())
    live.locator(".out", has_text="推后，同一通道").click()
    expect(live).to_contain_text("空闲。")
    expect(page.locator("#d-s")).to_have_value("16:00")
    assert here.complaints == []


def test_the_button_says_when_approval_is_needed(world: Scene, visit: Any) -> None:
    with world.store.write() as db:
        db.get(Channel, world.ids["gpu-b01/g0"]).policy = {"approval": "always"}
        users.by_name(db, "maya").password_hash = users.by_name(db, "lin").password_hash
    here = visit(WIDE)
    page = here.sign_in("maya", PASSWORD)  # an administrator needs none
    page.click(f"{G0} [data-book]")
    submit = page.locator("#book-dialog [data-submit]")
    expect(submit).to_have_text("Ask for approval")
    page.select_option("#d-ch", "gpu-a01/main")
    expect(submit).to_have_text("Book")
    assert here.complaints == []


def test_the_keyboard_reaches_the_dialog_and_escape_gives_focus_back(visit: Any) -> None:
    here = visit(WIDE)
    page = here.sign_in("lin", PASSWORD)
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.top [data-book]')"):
            break
    else:
        pytest.fail("thirty times Tab do not reach the button that books")
    page.keyboard.press("Enter")
    expect(page.locator("#d-s")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#book-dialog")).to_be_hidden()
    assert page.evaluate("document.activeElement.matches('.top [data-book]')")
    page.keyboard.press("b")
    expect(page.locator("#book-dialog")).to_be_visible()
    page.locator("#d-n").fill("b, and then some")  # no key fires while one types
    expect(page.locator("#book-dialog")).to_be_visible()
    assert here.complaints == []


def test_the_language_changes_and_stays(visit: Any) -> None:
    here = visit(PHONE)
    page = here.sign_in("lin", PASSWORD)
    page.click("[data-me-menu] summary")
    page.click('[data-me-menu] a[hreflang="zh-Hans"]')
    expect(page.locator("h1")).to_have_text("总览")
    assert page.get_attribute("html", "lang") == "zh-Hans"
    page.reload()
    expect(page.locator("h1")).to_have_text("总览")
    page.click("[data-me-menu] summary")
    page.click('[data-me-menu] a[hreflang="en"]')
    expect(page.locator("h1")).to_have_text("Overview")


def test_a_lost_connection_is_said_and_found_again(visit: Any) -> None:
    here = visit(WIDE)
    page = here.sign_in("lin", PASSWORD)
    here.context.set_offline(True)
    expect(page.locator("[data-live-state]")).to_contain_text("Connection lost; this is 14:28:0")
    before = page.locator(f"{G0} .ch-why").inner_text()
    assert before  # what was known stays
    page.click(".yours [data-do=extend]")
    expect(page.locator("[data-toast]")).to_contain_text("Not done")
    here.context.set_offline(False)
    expect(page.locator("[data-live-state]")).to_have_text("Live")


def test_signing_out_ends_the_session(visit: Any) -> None:
    here = visit(PHONE)
    page = here.sign_in("lin", PASSWORD)
    page.click("[data-me-menu] summary")
    page.click('form[action="/logout"] button')
    page.wait_for_url(here.url + "/login")
    page.goto(here.url + "/")
    assert "/login" in page.url
