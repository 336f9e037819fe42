"""Every page, in both themes and languages and at both widths: nothing that axe-core calls serious or critical, nothing the
content policy forbids, no sideways scrolling. The pictures stay in .parts/screens, to be looked at."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import SCREENS
from tests.browser.visits import CHROMIUM, PHONE, WIDE, Visitor, served
from tests.console_scene import PASSWORD, Scene, scene
from tests.console_week import lived_in

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright (PyPI) is not installed")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"chromium is not installed ({CHROMIUM})"),
]
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
    "login": "/login",
}
# Dialogs are looked at where they are open: page, what to press, what then is there.
OPEN = {
    "dialog-free": ("/", ".top [data-book]", "#d-live .note--ok"),
    "dialog-conflict": ("/", '[data-channel="gpu-b01/g1"] [data-book]', "#d-live .out"),
    "dialog-sure": ("/bookings", "[data-do=end]", "#sure[open]"),
    "dialog-keys": ("/", "", "#keys[open]"),
    "menu": ("/", "[data-me-menu] summary", "[data-me-menu] .menu-box"),
}


# What people see who may less, or have nothing yet.
OTHERS = {
    "forbidden": ("maya", "/admin/nodes"),
    "overview-of-a-user": ("maya", "/"),
    "booking-of-another": ("maya", "/bookings/{failing}"),
    "bookings-none": ("noa", "/bookings"),
    "bookings-past-none": ("noa", "/bookings/past"),
    "usage-none": ("noa", "/usage"),
    "notifications-none": ("noa", "/notifications"),
    "keys-none": ("noa", "/account"),
    "dialog-approval": ("noa", "/"),
    "approvals-of-an-approver": ("noor", "/approvals"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    world: Scene = scene(tmp_path_factory.mktemp("scene"), max_booking_hours=8)
    ids = lived_in(world)
    with served(world.app) as url:
        yield world, url, ids


@pytest.fixture(scope="module")
def axe() -> str:
    package = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python (PyPI) is not installed")
    return (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")


def faults(here: Visitor, axe: str) -> list[str]:
    """What axe-core finds serious or critical. Evaluated by the debugger: the page's policy lets no script in."""
    here.page.evaluate(axe)
    told = here.page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})")
    return [
        f"{v['id']} ({v['impact']}): {v['help']}: {json.dumps([n['target'] for n in v['nodes'][:4]])}"
        for v in told["violations"]
        if v["impact"] in ("serious", "critical")
    ]


def settle(here: Visitor) -> None:
    here.page.wait_for_load_state("load")
    here.page.evaluate("document.fonts.ready")
    here.page.wait_for_timeout(100)


def open_it(here: Visitor, press: str, there: str) -> None:
    """Presses a button (it may be one that this width hides; "": the key `?`) and waits for what it opens."""
    if press:
        button = here.page.locator(press).first
        button.click() if button.is_visible() else button.dispatch_event("click")
    else:
        here.page.keyboard.press("?")
    here.page.wait_for_selector(there)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("size", "language", "theme", "examined"),
    [
        (WIDE, "en", "light", True),
        (PHONE, "zh_Hans", "dark", True),
        (WIDE, "zh_Hans", "light", False),
        (PHONE, "en", "dark", False),
    ],
    ids=["1440-en-light", "390-zh-dark", "1440-zh-light", "390-en-dark"],
)
def test_every_page(
    made: Any, visit: Any, axe: str, size: dict[str, int], language: str, theme: str, examined: bool
) -> None:
    """`examined`: by axe-core as well; colours depend on the theme, and hardly anything on the language."""
    _world, url, ids = made
    here = visit(size, language, url=url, color_scheme=theme, reduced_motion="reduce")
    folder = SCREENS / f"{size['width']}-{language}-{theme}"
    folder.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []

    def look(name: str) -> None:
        settle(here)
        here.page.screenshot(path=str(folder / f"{name}.png"), full_page=not name.startswith(("dialog", "menu")))
        if examined:
            wrong.extend(f"{name}: {fault}" for fault in faults(here, axe))
        if here.sideways() > 0:
            wrong.append(f"{name}: {here.sideways()} px too wide")
        wrong.extend(f"{name}: {said}" for said in here.complaints if not re.search("status of 40[34]", said))
        here.complaints.clear()

    here.page.goto(url + "/login")
    look("login")
    here.sign_in("lin", PASSWORD)
    for name, path in PAGES.items():
        if name == "login":
            continue
        answer = here.page.goto(url + path.format(**ids))
        if answer.status == 404 and name != "not-found":
            wrong.append(f"{name}: 404")
            continue
        look(name)
    for name, (path, press, there) in OPEN.items():
        here.page.goto(url + path)
        open_it(here, press, there)
        look(name)
    for who in dict.fromkeys(name for name, _ in OTHERS.values()):
        here.context.clear_cookies(name="slotserve")
        here.sign_in(who, PASSWORD, "/models")
        for name, (whose, path) in OTHERS.items():
            if whose == who:
                here.page.goto(url + path.format(**ids))
                if name == "dialog-approval":
                    open_it(here, '[data-channel="gpu-b01/g0"] [data-book]', "#d-live .note")
                look(name)
    assert wrong == []


def test_the_pictures_are_not_committed() -> None:
    ignored = (Path(__file__).parents[2] / ".gitignore").read_text()
    assert ".parts/" in ignored
