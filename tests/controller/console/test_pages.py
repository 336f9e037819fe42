"""Log-in, headers, languages, and that no page has inline script or style."""

from __future__ import annotations

import re
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from controller.console import POLICY
from controller.console.language import TRANSLATIONS
from controller.console.language import catalogue as whole_catalogue
from controller.console.show import clock, countdown, date, duration, model_name, moment, window
from controller.console.signed_in import safe_next
from controller.throttle import Throttle
from controller.words import PHASES
from tests.console_scene import NOW, PASSWORD, Scene, at
from tests.translations import texts

PAGES = (
    "/login",
    "/",
    "/overview/rows",
    "/timeline",
    "/timeline/rows",
    "/bookings",
    "/bookings/past",
    "/bookings/calendar",
    "/approvals",
    "/nowhere",
)


def token(page: str) -> str:
    found = re.search(r'name="csrf_token" value="([^"]+)"', page)
    assert found
    return found[1]


def log_in(client, name: str = "lin", password: str = PASSWORD, **more: str):
    page = client.get("/login").text
    return client.post("/login", data={"csrf_token": token(page), "name": name, "password": password, **more})


def test_log_in_and_out(world: Scene) -> None:
    client = world.app.test_client()
    assert client.get("/").headers["Location"] == "/login?next=/"
    assert client.get("/overview/rows").status_code == 401
    answer = log_in(client, next="/?x=1")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/?x=1")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    page = client.get("/")
    assert page.status_code == 200
    assert client.get("/login").status_code == 302
    assert client.post("/logout").status_code == 400  # without the token
    assert client.get("/").status_code == 200
    assert client.post("/logout", data={"csrf_token": token(page.text)}).headers["Location"] == "/login"
    assert client.get("/").status_code == 302


def test_cookies_are_secure_wherever_it_is_reached_by_https(world: Scene) -> None:
    for scheme in ("http", "https"):
        client = world.app.test_client()
        base = f"{scheme}://console.test"
        page = client.get("/login", base_url=base).text
        body = {"csrf_token": token(page), "name": "lin", "password": PASSWORD}
        answer = client.post("/login", data=body, base_url=base, headers={"Referer": base + "/login"})
        language = client.get("/language/en", base_url=base)
        for cookie in (answer.headers["Set-Cookie"], language.headers["Set-Cookie"]):
            assert ("Secure" in cookie) == (scheme == "https"), cookie


def test_a_new_session_at_each_log_in(world: Scene) -> None:
    client = world.app.test_client()
    with client.session_transaction() as session:
        session["planted"] = "before"
    log_in(client)
    with client.session_transaction() as session:
        assert "planted" not in session
        assert session["session"]


def test_a_new_password_ends_the_sessions_from_before(world: Scene) -> None:
    here, elsewhere = world.app.test_client(), world.app.test_client()
    for client in (here, elsewhere):
        log_in(client)
        assert client.get("/api/v1/me").status_code == 200
    changed = here.patch(
        f"/api/v1/users/{world.ids['lin']}",
        json={"password": "a longer horse", "current_password": PASSWORD},
        headers={"Authorization": f"Bearer {world.keys['lin']}"},
    )
    assert changed.status_code == 200, changed.text
    assert elsewhere.get("/").status_code == 302
    assert elsewhere.get("/overview/rows").status_code == 401
    assert elsewhere.get("/api/v1/me").status_code == 401
    assert log_in(elsewhere, password="a longer horse").status_code == 302
    assert elsewhere.get("/").status_code == 200


def test_wrong_names_and_passwords_get_one_answer_and_then_a_wait(world: Scene) -> None:
    client = world.app.test_client()
    texts_of = set()
    for name, password in (("lin", "wrong"), ("nobody", "wrong"), ("maya", "wrong"), ("lin", ""), ("\x00", "x")):
        answer = log_in(client, name, password)
        assert answer.status_code == 401
        texts_of.add(re.search(r'role="alert".*?<b>(.*?)</b>', answer.text, re.DOTALL)[1])
    assert texts_of == {"Name and password do not fit together."}
    answer = log_in(client)  # right, but too soon after five wrong ones
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) >= 1
    assert client.get("/").status_code == 302


def test_the_wait_doubles_and_ends() -> None:
    now = [0.0]
    throttle = Throttle(lambda: now[0], free=2, most=5, size=3)
    waits = []
    for _ in range(6):
        throttle.failed("a")
        waits.append(throttle.wait("a", "b"))
    assert waits == [0, 1, 2, 4, 5, 5]
    now[0] += 5
    assert throttle.wait("a") <= 0
    throttle.succeeded("a")
    throttle.failed("a")
    assert throttle.wait("a") == 0
    for key in "bcdefg":
        throttle.failed(key)
    assert len(throttle._failures) == 3


def test_log_in_needs_its_token(world: Scene) -> None:
    answer = world.app.test_client().post("/login", data={"name": "lin", "password": PASSWORD})
    assert answer.status_code == 400
    assert "<html" in answer.text  # a page, not JSON


def test_a_disabled_person_is_out_at_once(world: Scene) -> None:
    client = world.client("maya")
    assert client.get("/").status_code == 200
    from controller.store.tables import User

    with world.store.write() as db:
        db.get(User, world.ids["maya"]).disabled_at = world.now
    assert client.get("/").status_code == 302


@pytest.mark.parametrize("path", PAGES)
def test_headers_and_nothing_inline(world: Scene, path: str) -> None:
    client = world.client(None if path == "/login" else "lin")
    answer = client.get(path)
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    text = answer.text
    assert not re.search(r"<style|\sstyle=|\son\w+=\"|javascript:", text)
    assert all(
        re.match(r'<script src="/static/[\w./-]+\?v=\w+"( defer)?></script>', tag)
        for tag in re.findall(r"<script.*?</script>", text, re.DOTALL)
    )
    if not path.endswith("/rows"):
        assert answer.headers["Cache-Control"] == "no-store"


def test_static_files_are_there_and_nothing_else(world: Scene) -> None:
    client = world.app.test_client()
    page = client.get("/login").text + world.client("lin").get("/").text
    for path in set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page)):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["Cache-Control"]
    for path in ("/static/../console/login.py", "/static/%2e%2e/login.py", "/static/none.js"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize("path", ["//evil.test", "/\\evil.test", "https://evil.test", "", None, "/\nx", "relative"])
def test_only_paths_of_this_site_are_next(path: str | None) -> None:
    assert safe_next(path) == "/"
    assert safe_next("/a?b=c") == "/a?b=c"


def test_the_language_is_chosen_kept_and_guessed(world: Scene) -> None:
    client = world.app.test_client()
    assert 'lang="zh-Hans"' in client.get("/login", headers={"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.1"}).text
    assert 'lang="en"' in client.get("/login", headers={"Accept-Language": "de"}).text
    answer = client.get("/language/zh_Hans?next=/login")
    assert answer.headers["Location"] == "/login"
    assert "登录" in client.get("/login").text
    assert client.get("/language/xx?next=//evil").headers["Location"] == "/"


def test_every_text_is_translated_with_its_places() -> None:
    for language in [path.name for path in TRANSLATIONS.iterdir()]:
        catalogue = whole_catalogue(language)
        known = {m.id: m for m in catalogue if m.id}
        wanted = texts()
        assert len(wanted) > 150
        missing = {
            t
            for t in wanted
            if t not in known or not all(known[t].string if isinstance(known[t].string, tuple) else [known[t].string])
        }
        assert not missing
        assert not set(known) - wanted, "no longer used"
        for message in known.values():
            assert not message.fuzzy
            one = message.id[0] if isinstance(message.id, tuple) else message.id
            other = message.string[0] if isinstance(message.string, tuple) else message.string
            assert sorted(re.findall(r"%\(\w+\)s", one)) == sorted(re.findall(r"%\(\w+\)s", other)), one


def test_no_english_is_left_on_the_chinese_page(world: Scene) -> None:
    page = world.client("maya", "zh_Hans").get("/").text
    text = re.sub(r'<[^>]+lang="en".*?</', " ", page)
    for word in ("Booking", "Ready", "Default", "Reserved", "Nothing", "Requests", "Overview", "Next try", "Close"):
        assert word not in re.sub(r"<[^>]*>|Default-", " ", text).replace("Last-Modified", "")


def test_every_phase_has_words_an_icon_and_a_pill() -> None:
    phases = {"off", "draining", "stopping", "freeing", "loading", "ready", "retry_wait", "blocked", "unknown", "gone"}
    assert phases == set(PHASES)
    sheet = (Path(TRANSLATIONS).parent / "static").glob("*.css")
    sheet = "".join(path.read_text() for path in sheet)
    for _, icon, pill in PHASES.values():
        assert f".ic-{icon}" in sheet
        assert f".pill--{pill}" in sheet


@pytest.mark.parametrize(
    ("name", "head", "tail"),
    [
        ("Qwen3-32B-Q4_K_M", "Qwen3-32B", "-Q4_K_M"),
        (
            "Llama-3.3-Nemotron-Super-49B-v1.5-Instruct-UD-Q4_K_XL",
            "Llama-3.3-Nemotron-Super-49B-v1.5-Instruct",
            "-UD-Q4_K_XL",
        ),
        ("gpt-oss-120b-MXFP4", "gpt-oss-120b", "-MXFP4"),
        ("Qwen3-32B-FP8", "Qwen3-32B", "-FP8"),
        ("tiny", "tiny", ""),
        ("-Q8_0", "-Q8_0", ""),
    ],
)
def test_a_model_name_keeps_its_tail(name: str, head: str, tail: str) -> None:
    wanted = (
        f'<span class="mn" title="{name}"><span>{head}</span>' + (f"<span>{tail}</span>" if tail else "") + "</span>"
    )
    assert model_name(name) == wanted


def test_durations(world: Scene) -> None:
    with world.app.test_request_context("/", headers={"Cookie": "language=en"}):
        shown = [duration(s) for s in (-3, 84, 180, 274, 720, 3600, 5520, 172800, 183600)]
        left = [
            countdown(form, 10**12, 10**12 - s * 1000) for form, s in (("left", 5516), ("in", 116), ("since", -716))
        ]
    assert shown == ["0 s", "84 s", "3 min", "4 min 34 s", "12 min", "1 h", "1 h 32 min", "2 d", "2 d 3 h"]
    assert [str(x).partition(">")[2] for x in left] == ["1 h 32 min left</span>", "in 116 s</span>", "11 min</span>"]


def test_days_are_in_the_order_of_the_language(world: Scene) -> None:
    zone = ZoneInfo("Asia/Shanghai")
    for language, wanted in (("en", ["18 Nov 17:02", "Thu 19"]), ("zh_Hans", ["11月18日 17:02", "19日 周四"])):
        with world.app.test_request_context("/", headers={"Cookie": f"language={language}"}):
            assert [clock(at("18 17:02"), NOW, zone), date(moment(NOW, zone))] == wanted
            assert "19:00" in window(at("19:00"), at("20 07:00"), NOW, zone).partition(" – ")[0]


class Logs:
    """Two launches: the newest failed, for a reservation."""

    def __init__(self, reservation: str) -> None:
        self._rows = [
            {"id": "l2", "launched_at": 2, "preset": None, "reservation_id": reservation, "failed": True},
            {"id": "l1", "launched_at": 1, "preset": "p", "reservation_id": "", "failed": False},
        ]
        self._rows = [{"model": "m", "ended": True, "size": 9, **row} for row in self._rows]

    def launches(self, node: str, channel: str) -> list[dict[str, object]]:
        return self._rows if (node, channel) == ("gpu-a02", "tp4-a") else []

    def read(self, node: str, channel: str, offset: int, limit: int, launch: str = "current") -> dict[str, object]:
        return {"file": launch, "offset": 0, "next_offset": 9, "text": f"{launch} says <b>boo</b>", "ended": True}


def test_the_log_page_has_the_rights_of_the_api(world: Scene) -> None:
    from controller.store.tables import Reservation

    with world.store.read() as db:
        booking = db.query(Reservation).filter_by(holder_id=world.ids["sofia"]).one().id
    world.ctx.logs = Logs(booking)
    for who in ("lin", "sofia"):
        page = world.client(who).get("/log/gpu-a02/tp4-a")
        assert "l2 says &lt;b&gt;boo&lt;/b&gt;" in page.text
    assert world.client("tomas").get("/log/gpu-a02/tp4-a").status_code == 403
    assert "l1 says" in world.client("tomas").get("/log/gpu-a02/tp4-a?launch=l1").text
    assert "No output yet" in world.client("tomas").get("/log/gpu-a01/main").text
    assert world.client("tomas").get("/log/gpu-a01/none").status_code == 404
    assert world.app.test_client().get("/log/gpu-a02/tp4-a").status_code == 302
    assert 'href="/channels/gpu-a02/tp4-a#log"' in world.client("sofia").get("/").text
    assert 'href="/channels/gpu-a02/tp4-a#log"' not in world.client("tomas").get("/").text


def test_how_to_call_is_on_own_bookings(world: Scene) -> None:
    import html

    client = world.client("lin")
    link = re.search(r'href="(/bookings/\w+)#how"', client.get("/").text)
    assert link
    page = html.unescape(client.get(link[1]).text)
    assert "curl http://gpu-a01:8710/channels/c6/v1/chat/completions" in page
    assert "$SLOTSERVE_API_KEY" in page
    assert '"model": "Qwen3-32B-Q4_K_M:long-context"' in page
