"""Every page, in both themes and languages and at both widths: nothing that axe-core calls serious or critical, nothing the
content policy forbids, no sideways scrolling. The pictures stay in .parts/screens, to be looked at.

A page is fetched once a language and looked at in two ways: wide and light, then as narrow as a phone and dark.
"""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest

from tests.browser.conftest import SCREENS
from tests.browser.visits import PHONE, WIDE, Visitor, served
from tests.console_scene import PASSWORD, Scene, scene
from tests.console_week import lived_in

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGES = {
    "overview": "/",
    "timeline": "/timeline",
    "timeline-week": "/timeline?view=week",
    "timeline-list": "/timeline?view=list",
    "timeline-empty": "/timeline?node=none",
    "bookings": "/bookings",
    "bookings-past": "/bookings/past",
    "bookings-calendar": "/bookings/calendar",
    "booking": "/bookings/{booking}",
    "booking-bare-card": "/bookings/{exclusive}",
    "approvals": "/approvals",
    "channel": "/channels/gpu-a02/tp4-a",
    "log": "/log/gpu-a01/main",
    "models": "/models",
    "model": "/models/Qwen3-32B-FP8",
    "presets": "/presets",
    "preset-new": "/presets/new",
    "usage": "/usage",
    "try": "/try",
    "admin-nodes": "/admin/nodes",
    "admin-users": "/admin/users",
    "admin-keys": "/admin/keys",
    "admin-notifications": "/admin/notifications",
    "admin-wall": "/admin/wall",
    "admin-audit": "/admin/audit",
    "admin-settings": "/admin/settings",
    "account": "/account",
    "account-told": "/account/notifications",
    "notifications": "/notifications",
    "wall": "/wall/{wall}",
    "not-found": "/nowhere",
}
# Dialogs are looked at where they are open: page, what to press, what then is there, and what axe-core looks at (the page
# behind it has been looked at by itself).
OPEN = {
    "dialog-free": ("/", ".top [data-book]", "#d-live .note--ok", "#book-dialog"),
    "dialog-conflict": ("/", '[data-channel="gpu-b01/g1"] [data-book]', "#d-live .out", "#book-dialog"),
    "dialog-approval": ("/", '[data-channel="gpu-b01/g0"] [data-book]', "#d-live .note", "#book-dialog"),
    "dialog-sure": ("/bookings", "[data-do=end]", "#sure[open]", "#sure"),
    "dialog-keys": ("/", "", "#keys[open]", "#keys"),
    "menu": ("/", "[data-me-menu] summary", "[data-me-menu] .menu-box", "[data-me-menu]"),
}
# A page is complete once its fonts and the figures of the cards in view are there.
SETTLED = """() => document.readyState === 'complete' && document.fonts.status === 'loaded'
  && (!document.querySelector('.ch-gpu[data-gpu]') || !!document.querySelector('.ch-gpu[data-gpu] .meter'))"""
AXE = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
    "resultTypes": ["violations"],  # of the others it need not look for every place
    "preload": False,  # the style sheets are only asked whether they forbid turning the screen: none is ours that does
}
# What people see who may less, or have nothing yet.
OTHERS = {
    "forbidden": ("maya", "/admin/nodes"),
    "overview-of-a-user": ("maya", "/"),
    "booking-of-another": ("maya", "/bookings/{failing}"),
    "approvals-of-an-approver": ("noor", "/approvals"),
    "bookings-none": ("noa", "/bookings"),
    "bookings-past-none": ("noa", "/bookings/past"),
    "usage-none": ("noa", "/usage"),
    "notifications-none": ("noa", "/notifications"),
    "keys-none": ("noa", "/account"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    world: Scene = scene(tmp_path_factory.mktemp("scene"), max_booking_hours=8)
    ids = lived_in(world)
    with served(world.app) as url:
        yield world, url, ids


@pytest.fixture(scope="module")
def axe() -> str:
    return (resources.files(axe_playwright_python) / "axe.min.js").read_text(encoding="utf-8")


class Way:
    """One way to look: a width and a theme. `examined`: by axe-core as well; colours depend on the theme, and hardly
    anything on the language."""

    def __init__(self, here: Visitor, size: dict[str, int], theme: str, language: str, axe: str) -> None:
        self.here, self.size, self.theme, self.axe = here, size, theme, axe
        self.folder = SCREENS / f"{size['width']}-{language}-{theme}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def turn(self) -> None:
        self.here.page.set_viewport_size(self.size)
        self.here.page.emulate_media(color_scheme=self.theme, reduced_motion="reduce")

    def look(self, name: str, part: str = "html") -> list[str]:
        """Takes the picture; what is wrong."""
        here = self.here
        here.page.wait_for_function(SETTLED)
        here.painted()
        whole = part == "html"
        here.page.screenshot(path=str(self.folder / f"{name}.png"), full_page=whole)
        wrong = self._faults(part) if self.axe else []
        if here.sideways() > 0:
            wrong.append(f"{here.sideways()} px too wide")
        wrong.extend(said for said in here.complaints if not re.search("status of 40[34]", said))
        here.complaints.clear()
        return [f"{name} ({self.folder.name}): {fault}" for fault in wrong]

    def _faults(self, part: str) -> list[str]:
        """What axe-core finds serious or critical. Evaluated by the debugger: the page's policy lets no script in."""
        told = self.here.page.evaluate(f"{self.axe};axe.run({json.dumps(part)}, {json.dumps(AXE)})")
        return [
            f"{v['id']} ({v['impact']}): {v['help']}: {json.dumps([n['target'] for n in v['nodes'][:4]])}"
            for v in told["violations"]
            if v["impact"] in ("serious", "critical")
        ]


def open_it(here: Visitor, press: str, there: str) -> None:
    """Presses a button (it may be one that this width hides; "": the key `?`) and waits for what it opens."""
    if press:
        button = here.page.locator(press).first
        button.click() if button.is_visible() else button.dispatch_event("click")
    else:
        here.page.keyboard.press("?")
    here.page.wait_for_selector(there)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("language", ["en", "zh_Hans"])
def test_every_page(made: Any, visit: Any, axe: str, language: str) -> None:
    _world, url, ids = made
    here = visit(WIDE, language, url=url)
    ways = (
        Way(here, WIDE, "light", language, axe if language == "en" else ""),
        Way(here, PHONE, "dark", language, axe if language != "en" else ""),
    )
    wrong: list[str] = []

    def see(name: str, path: str) -> None:
        ways[0].turn()
        answer = here.page.goto(url + path.format(**ids))
        if answer.status == 404 and name != "not-found":
            wrong.append(f"{name}: 404")
            return
        for way in ways:
            way.turn()
            wrong.extend(way.look(name))

    def opened(name: str) -> None:
        path, press, there, part = OPEN[name]
        for way in ways:  # a sheet on a phone, beside the page where it is wide
            way.turn()
            here.page.goto(url + path)
            open_it(here, press, there)
            wrong.extend(way.look(name, part))

    see("login", "/login")
    here.sign_in("lin", PASSWORD)
    for name, path in PAGES.items():
        see(name, path)
    for name in OPEN:
        if name != "dialog-approval":
            opened(name)
    for who in dict.fromkeys(name for name, _ in OTHERS.values()):
        here.context.clear_cookies(name="slotserve")
        here.sign_in(who, PASSWORD, "/models")
        for name, (whose, path) in OTHERS.items():
            if whose == who:
                see(name, path)
    opened("dialog-approval")  # of the last one, who is no administrator
    assert wrong == []


def test_the_pictures_are_not_committed() -> None:
    ignored = (Path(__file__).parents[2] / ".gitignore").read_text()
    assert ".parts/" in ignored
