"""Channel, log, presets, keys, wall and chat in a real browser, against the made-up scene and against a real controller,
agent and gateway with simulated engines."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from controller.fleet.logs import Launch, LogStore
from controller.store import links
from controller.store.tables import Preset
from tests.browser.visits import PHONE, served
from tests.console_scene import NOW, PASSWORD, Scene, scene
from tests.system.cluster import Cluster, running
from tests.system.conftest import SIMULATED, sim_model

pytestmark = [pytest.mark.browser, pytest.mark.slow]
WAIT = 30_000  # ms; only a broken console needs so long


# --- against the scene ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return scene(tmp_path_factory.mktemp("scene"), max_booking_hours=0)


@pytest.fixture(scope="module")
def url(world: Scene) -> Iterator[str]:
    with served(world.app) as address:
        yield address


def test_ten_megabytes_of_log_are_a_small_window(world: Scene, url: str, visit: Any) -> None:
    logs = LogStore(world.ctx.settings.state_dir / "logs")
    lines = [f"INFO line {n:06d} {'y' * 80}\n" for n in range(1, 100_001)]
    lines[49_999] = "ERROR line 050000 the needle \x1b[31mis red\x1b[0m <img src=x onerror=alert(1)>\n"
    text = "".join(lines).encode()
    launch = Launch("big", NOW - 60_000, "DeepSeek-R1-Distill-Llama-70B-BF16", None, "")
    for at in range(0, len(text), 1_000_000):
        logs.append("gpu-a01", "main", launch, at, text[at : at + 1_000_000])
    world.ctx.logs = logs
    assert logs.launches("gpu-a01", "main")[0]["size"] > 9_000_000
    here = visit(url=url)
    page = here.sign_in("lin", PASSWORD, "/log/gpu-a01/main")
    box = page.locator("[data-log-box]")
    expect(box.locator("li").last).to_contain_text("line 100000", timeout=WAIT)
    assert box.locator("li").count() < 8000, "a window of it, not all"
    for _ in range(12):  # back through some pieces
        box.evaluate("e => { e.scrollTop = 600; e.scrollTop = 0; }")
        page.wait_for_timeout(120)
    assert box.locator("li").count() < 8000
    assert page.locator("[data-log-follow]").get_attribute("aria-pressed") == "false"
    page.fill("[data-log-search]", "needle")
    page.press("[data-log-search]", "Enter")
    expect(page.locator("[data-log-count]")).to_have_text("1 of 1", timeout=WAIT)
    found = box.locator("li.is-place")
    expect(found).to_contain_text("ERROR line 050000 the needle is red <img src=x onerror=alert(1)>")
    expect(found.locator("i")).to_have_text("50000")
    expect(found.locator("mark")).to_have_text("needle")
    expect(found).to_be_in_viewport()
    assert box.locator("li").count() < 8000
    logs.append("gpu-a01", "main", launch, len(text), b"INFO the newest\n")
    page.click("[data-log-follow]")
    expect(box.locator("li").last).to_contain_text("the newest", timeout=WAIT)
    logs.append("gpu-a01", "main", launch, len(text) + 16, b"INFO even newer\n")
    expect(box.locator("li").last).to_contain_text("even newer", timeout=WAIT)
    assert here.complaints == []


def test_a_preset_is_edited_with_the_live_answer(world: Scene, url: str, visit: Any) -> None:
    with world.store.read() as db:
        preset = db.query(Preset).filter_by(name="long-context").one()
    here = visit(url=url)
    page = here.sign_in("lin", PASSWORD, f"/presets/{preset.id}")
    command = page.locator("[data-cmd]")
    expect(command.locator(".yours-arg")).to_have_text("-c 65536")
    page.fill("#p-args", "-c 32768\n--ctx-sise 1\n--host 0.0.0.0 --slot-save-path slots")
    finds = page.locator("[data-finds] > li")
    expect(finds).to_have_count(3)
    expect(page.locator("[data-finds]")).to_contain_text("Did you mean --ctx-size?")
    expect(page.locator("[data-finds]")).to_contain_text("Needs permission:")
    expect(page.locator("[data-finds]")).to_contain_text("Dropped. SlotServe sets the address")
    expect(command.locator(".unk")).to_have_text("--ctx-sise 1")
    finds.filter(has_text="--ctx-sise").get_by_role("button", name="Remove it").click()
    finds.filter(has_text="--slot-save-path").get_by_role("button", name="Remove it").click()
    finds.filter(has_text="--host").get_by_role("button", name="Remove it").click()
    expect(page.locator("#p-args")).to_have_value("-c 32768\n")
    expect(page.locator("[data-finds]")).to_contain_text("Nothing to say")
    page.get_by_role("button", name="Add a variable").click()
    page.locator("[data-env-name]").fill("GGML_CUDA_FORCE_MMQ")
    page.locator("[data-env-value]").fill("1")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("[data-toast]")).to_contain_text("Preset saved")
    with world.store.read() as db:
        row = db.get(Preset, preset.id)
        assert (row.args, row.env, row.version) == (["-c", "32768"], {"GGML_CUDA_FORCE_MMQ": "1"}, 2)
    page.fill("#p-name", "")
    page.fill("#p-name", "two: words")
    page.get_by_role("button", name="Save as a new preset").click()
    expect(page.locator("#said-name")).to_contain_text("must not hold ':'")
    expect(page.locator("#p-name")).to_be_focused()
    assert [c for c in here.complaints if "422" not in c] == []


def test_a_key_is_made_shown_once_and_revoked(world: Scene, url: str, visit: Any) -> None:
    here = visit(PHONE, "zh_Hans", url=url)
    page = here.sign_in("lin", PASSWORD, "/account")
    page.fill("#k-name", "notebook")
    page.press("#k-name", "Enter")
    secret = page.locator("#secret")
    expect(secret).to_have_text(re.compile("^sk-ss-"))
    expect(page.locator("#env")).to_contain_text(f"export SLOTSERVE_API_KEY={secret.inner_text()}")
    told = page.evaluate(
        "s => fetch('/api/v1/me', {headers: {Authorization: `Bearer ${s}`}}).then(a => a.json())", secret.inner_text()
    )
    assert told["name"] == "lin"
    made = secret.inner_text()
    page.locator("[data-kept]").click()
    row = page.locator("tr", has_text="notebook")
    expect(row).to_be_visible()
    assert made not in page.content()
    row.locator("button", has_text="吊销").click()
    page.locator("#ask button", has_text="取消").click()
    expect(page.locator("#ask")).to_be_hidden()
    row.locator("button", has_text="吊销").click()
    page.locator("#ask [data-ask-yes]").click()
    expect(page.locator("tr.is-off", has_text="notebook")).to_be_visible()
    assert here.complaints == []


def test_an_override_by_keyboard_alone(world: Scene, url: str, visit: Any) -> None:
    here = visit(url=url)
    page = here.sign_in("lin", PASSWORD, "/channels/lab-3090/g0")
    page.locator("#o-m").focus()
    page.keyboard.press("Tab")
    for name in ("#o-p", "input[name=what][value=model]"):
        if page.locator(name).evaluate("e => e === document.activeElement"):
            page.keyboard.press("Tab")
    page.locator("#o-reason").focus()
    page.keyboard.type("a test by keys")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "submit"
    page.keyboard.press("Enter")
    note = page.locator("[data-part=ch-override] .note")
    expect(note).to_contain_text("Mistral-Small-3.2-24B-Q4_K_M")
    expect(note).to_contain_text("Set by lin until a booking begins.")
    expect(page.locator("[data-part=ch-plan] tbody tr").first).to_contain_text("Override by lin")
    note.get_by_role("button").press("Enter")
    expect(note).to_have_count(0)
    with world.store.read() as db:
        from controller.store.tables import Audit

        rows = db.query(Audit).filter_by(subject="lab-3090/g0").order_by(Audit.id).all()
        assert [(r.action, r.reason) for r in rows] == [
            ("channel.override", "a test by keys"),
            ("channel.override_clear", ""),
        ]
    assert here.complaints == []


def test_rules_are_edited_and_a_wrong_one_is_told_at_its_field(world: Scene, url: str, visit: Any) -> None:
    here = visit(url=url)
    page = here.sign_in("lin", PASSWORD, "/channels/gpu-a01/main")
    page.get_by_text("Change the rules").click()
    page.select_option("#r-approval", "over")
    page.fill("#r-over", "4")
    page.fill("#r-max_hours", "12")
    page.fill("#r-max_concurrent", "0.5")
    page.locator("form:has(#r-approval) [type=submit]").click()
    assert page.locator("#r-max_concurrent").evaluate("e => e.validity.stepMismatch") is True
    page.fill("#r-max_concurrent", "8")
    page.select_option("#r-who", "some")
    page.fill("#r-users", "maya")
    page.locator("form:has(#r-approval) [type=submit]").click()
    expect(page.locator("[data-toast]")).to_contain_text("Rules saved")
    rules = page.locator("section:has(#h-set) .kv")
    for words in ("needed over 4 h", "12 h", "8 requests", "maya"):
        expect(rules).to_contain_text(words)
    assert here.complaints == []


def test_the_wall_is_live_and_has_no_names(world: Scene, url: str, visit: Any) -> None:
    with world.store.write() as db:
        secret = links.create(db, world.ids["lin"], "wall", NOW, None, "The lab")[1]
    here = visit({"width": 1920, "height": 1080}, url=url)
    page = here.page
    page.goto(f"{url}/wall/{secret}?theme=dark")
    tile = page.locator(".tile", has_text="lab-3090/g0")
    expect(tile).to_contain_text("Nothing loaded")
    assert not any(name in page.content() for name in ("sofia", "tomas", "maya"))
    from controller.fleet.live import LiveChannel

    node = world.live.node("lab-3090")
    world.live.update("lab-3090", channels={**node.channels, "g0": LiveChannel("loading", running="m")})
    expect(tile).to_contain_text("Loading", timeout=WAIT)
    world.live.update("lab-3090", channels=node.channels)
    expect(tile).to_contain_text("Nothing loaded", timeout=WAIT)
    assert here.sideways() == 0
    assert here.complaints == []


# --- against real processes -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("models")
    sim_model(folder, "base", load_seconds=0.2, token_ms=20)
    sim_model(folder, "slow", load_seconds=4, token_ms=20)
    sim_model(folder, "broken", load_seconds=0.2, oom=1)
    with running(SIMULATED, {"main": {"folder": folder, "engines": ["simulated"]}}) as made:
        made.until(lambda: len(made.get("/models")["items"]) == 3, 30, "the models are known")
        made.set_default("base")
        made.until_ready("base")
        yield made


def test_override_watch_the_load_follow_the_log_and_talk(cluster: Cluster, visit: Any) -> None:
    here = visit(url=cluster.url)
    page = here.sign_in("root", "root-password", "/channels/n1/main")
    now = page.locator("[data-part=ch-now]")
    expect(now).to_contain_text("base", timeout=WAIT)
    page.select_option("#o-m", "slow")
    page.click("[data-override] [type=submit]")
    expect(page.locator("[data-part=ch-override]")).to_contain_text("Set by root until a booking begins.")
    expect(page.locator("[data-part=ch-head]")).to_contain_text(re.compile("Switching|Loading"), timeout=WAIT)
    expect(now.locator("progress")).to_be_visible(timeout=WAIT)
    expect(now.locator("[data-tick=progress]")).to_contain_text(re.compile(r"\d s"))
    expect(page.locator("[data-part=ch-head]")).to_contain_text("Ready", timeout=WAIT)
    expect(now.locator(".pair > div").nth(1)).to_contain_text("slow")
    log = page.locator("[data-log-box]")
    expect(page.locator("[data-log-select] option").first).to_contain_text("slow", timeout=WAIT)
    expect(log).to_contain_text("slow", timeout=WAIT)
    page.goto(f"{cluster.url}/try?channel=n1/main")
    expect(page.locator("[data-try-channel]")).to_have_value("n1/main")
    page.fill("#c-text", "hello there")
    page.press("#c-text", "Enter")
    answer = page.locator(".msg--it")
    expect(answer.locator("small")).to_contain_text("tokens in", timeout=WAIT)
    assert len(answer.locator("span").first.inner_text()) > 5
    assert page.locator(".msg--me").inner_text() == "hello there"
    keys = [k for k in cluster.get("/keys")["items"] if k["name"] == "Try it (console)"]
    assert len(keys) == 1
    assert keys[0]["expires_at"] is not None
    assert "sk-ss-" not in page.content()
    page.goto(f"{cluster.url}/channels/n1/main")
    expect(log.locator("li").first).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Back to the default").click()
    expect(now.locator(".pair > div").nth(1)).to_contain_text("base", timeout=WAIT)
    expect(page.locator("[data-part=ch-head]")).to_contain_text("Ready", timeout=WAIT)
    expect(page.locator("[data-log-select] option").first).to_contain_text("base", timeout=WAIT)
    expect(log).to_contain_text("base", timeout=WAIT)  # who follows goes along to the next run
    page.reload()
    expect(page.locator("[data-part=ch-past] rect.g-busy").first).to_be_attached()
    assert here.complaints == []


def test_failure_advice_fallback_and_retry(cluster: Cluster, visit: Any) -> None:
    booking = cluster.book("broken", 0, 600)
    here = visit(url=cluster.url)
    try:
        page = here.sign_in("maya", "maya-password", "/channels/n1/main")
        now = page.locator("[data-part=ch-now]")
        note = now.locator(".note--bad")
        expect(note).to_contain_text("Out of GPU memory", timeout=WAIT)
        expect(page.locator("[data-part=ch-head]")).to_contain_text("Fallback", timeout=WAIT)
        expect(now).to_contain_text("The default answers for you while broken waits for its next try", timeout=WAIT)
        expect(now.locator(".pair > div").nth(1)).to_contain_text("base")
        note.get_by_role("button", name="Retry now").click()
        expect(page.locator("[data-toast]")).to_contain_text("Told to try again")
        note.get_by_role("link", name="Show in the log").click()
        expect(page.locator("[data-log-select]")).to_have_value(re.compile(".+"))
        expect(page.locator("[data-log-box]")).to_contain_text(
            re.compile("out of memory|failed", re.IGNORECASE), timeout=WAIT
        )
    finally:
        cluster.post(f"/reservations/{booking['id']}/end", {"reason": "over"})
    cluster.until_ready("base")
    assert [c for c in here.complaints if "403" not in c] == []


def test_somebody_elses_booking_is_told_in_the_chat(cluster: Cluster, visit: Any) -> None:
    booking = cluster.book("base", 0, 600, who="noor")
    try:
        cluster.until(lambda: cluster.channel()["booking"], 20, "the booking runs")
        here = visit(language="zh_Hans", url=cluster.url)
        page = here.sign_in("tomas", "tomas-password", "/try?channel=n1/main")
        deadline = time.monotonic() + 30
        while True:
            page.fill("#c-text", "hello")
            page.press("#c-text", "Enter")
            expect(page.locator("[data-try-send]")).to_be_visible(timeout=WAIT)
            if page.locator(".msg.note", has_text="目前为他人预约。").count():
                break
            assert time.monotonic() < deadline, page.locator("[data-try-box]").inner_text()
        assert "noor" not in page.locator("[data-try-box]").inner_text()
    finally:
        cluster.post(f"/reservations/{booking['id']}/end", {"reason": "over"})
    cluster.until_ready("base")


def test_an_administrators_day(cluster: Cluster, visit: Any) -> None:
    here = visit(url=cluster.url)
    page = here.sign_in("root", "root-password", "/admin/nodes")
    page.fill("#n-name", "n9")
    page.press("#n-name", "Enter")
    expect(page.locator("#join")).to_have_text(re.compile(r"^slotserve-agent enrol \S{200,}$"))
    page.locator("[data-reload]").click()
    node = page.locator("section.card", has=page.locator("#n-n9"))
    expect(node).to_contain_text("Has not joined yet")
    node.get_by_role("button", name="Remove …").click()
    expect(page.locator("#ask-words")).to_contain_text("Remove n9?")
    page.locator("#ask [data-ask-yes]").click()
    expect(node).to_have_count(0)
    first = page.locator("section.card", has=page.locator("#n-n1"))
    first.get_by_role("button", name="Cordon").click()
    expect(first).to_contain_text("Takes no new bookings")
    first.get_by_role("button", name="Uncordon").click()
    expect(first).not_to_contain_text("Takes no new bookings")
    page.goto(f"{cluster.url}/admin/users")
    page.fill("#a-name", "tobi")
    page.fill("#a-pw", "a-first-password")
    page.press("#a-pw", "Enter")
    row = page.locator("#u-list tr", has_text="tobi")
    expect(row).to_contain_text("temporary")
    row.locator("select").select_option("approver")
    expect(page.locator("[data-toast]")).to_contain_text("Role saved")
    booking = cluster.book("base", 3600, 7200, who="tomas")
    other = page.locator("#u-list tr", has_text="tomas")
    other.get_by_role("button", name="Disable …").click()
    expect(page.locator("#ask-words")).to_contain_text("Coming bookings that are cancelled: n1/main.")
    page.keyboard.press("Escape")
    assert cluster.get(f"/reservations/{booking['id']}")["status"] == "approved"
    row.get_by_role("button", name="Disable …").click()
    page.locator("#ask [data-ask-yes]").click()
    expect(page.locator("#u-list tr.is-off", has_text="tobi")).to_be_visible()
    cluster.post(f"/reservations/{booking['id']}/cancel", {"reason": "over"})
    page.goto(f"{cluster.url}/admin/wall")
    page.fill("#w-name", "The lab")
    page.press("#w-name", "Enter")
    expect(page.locator("#wall-url")).to_contain_text("/wall/")
    address = page.locator("#wall-url").inner_text()
    stranger = visit({"width": 1920, "height": 1080}, url=cluster.url)
    stranger.page.goto(address)
    expect(stranger.page.locator(".tile", has_text="n1/main")).to_contain_text("base")
    page.goto(f"{cluster.url}/admin/audit")
    trail = page.locator("section:has(#h-audit) tbody")
    for words in (
        "invited a node",
        "removed a node",
        "took a node out of booking",
        "added a person",
        "made a secret link",
    ):
        expect(trail).to_contain_text(words)
    page.select_option("#f-action", "node.remove")
    page.get_by_role("button", name="Filter").click()
    expect(trail).to_contain_text("n9")
    expect(trail).not_to_contain_text("added a person")
    assert here.complaints == []
    assert stranger.complaints == []
