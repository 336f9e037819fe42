"""Webhooks and chat services at a real receiver: signed, not followed, tried again; what may be inside the network."""

from __future__ import annotations

import json
import logging
import socket
from typing import Any

import pytest

from controller.notify.ways import chat, webhook
from controller.notify.ways.message import Refused, TryAgain
from tests.controller.api.conftest import HOUR, World
from tests.controller.notify.conftest import Make, Sink, outside, sender, states
from tests.parts import BOTH, free_port

DATABASES = BOTH


def hook(w: World, url: str, who: str = "root", **more: Any) -> Any:
    return w.good("POST", "/notification-targets", {"name": "hook", "way": "webhook", "url": url, **more}, who)


def cancelled(w: World, who: str = "maya", hour: int = 1) -> None:
    made = w.book(hour * HOUR, (hour + 1) * HOUR, who)
    w.good("POST", f"/reservations/{made['id']}/cancel", {"reason": "the card is broken"})


def test_a_webhook_is_signed_and_says_what_happened(making: Make, http: Sink) -> None:
    w = making(notify_private_targets=True, public_url="https://slots.example.org")
    target = hook(w, f"http://127.0.0.1:{http.port}/ok?x=1", "maya", language="zh_Hans", zone="Asia/Shanghai")
    assert target["url"] == f"http://127.0.0.1:{http.port}/…"
    cancelled(w)
    assert sender(w).step() == 1
    (got,) = http.requests
    said, headers = json.loads(got["body"]), got["headers"]
    assert got["path"] == "/ok?x=1"
    assert headers["Host"] == f"127.0.0.1:{http.port}"
    assert headers["X-SlotServe-Delivery"] == said["id"] == outside(w)[0].id
    assert headers["X-SlotServe-Event"] == said["kind"] == "cancelled"
    good = webhook.signature(target["secret"], headers["X-SlotServe-Timestamp"], got["body"].encode())
    assert headers["X-SlotServe-Signature"] == f"sha256={good}"
    assert int(headers["X-SlotServe-Timestamp"]) == w.now // 1000
    assert (said["channel"], said["model"], said["by"], said["reason"]) == (
        "n1/a",
        "small",
        "root",
        "the card is broken",
    )
    assert said["starts_at"] == "2027-01-15T09:00:00Z"
    assert said["language"] == "zh_Hans"
    assert "1月15日 周五 17:00–18:00" in said["title"]
    assert said["url"] == "https://slots.example.org/timeline"
    assert "secret" not in json.dumps(w.get("/notification-targets", "maya"))
    listed = w.get("/notification-targets", "maya")["items"][0]
    assert listed["last"]["state"] == "sent"


def test_each_answer_means_what_it_means(making: Make, http: Sink) -> None:
    w = making(notify_private_targets=True)
    base = f"http://127.0.0.1:{http.port}"
    ways = {f"{base}/redirect": "failed", f"{base}/status/410": "failed", f"{base}/status/404": "failed"}
    ways |= {f"{base}/status/500": "waiting", f"{base}/status/429": "waiting", f"{base}/long": "sent"}
    ways |= {f"http://127.0.0.1:{free_port()}/": "waiting"}
    ids = {hook(w, url, "maya")["id"]: url for url in ways}
    cancelled(w)
    sender(w).step()
    assert {ids[m.address]: m.state for m in outside(w)} == ways
    assert [r["path"] for r in http.requests].count("/ok") == 0  # nothing was followed
    assert all(m.error for m in outside(w) if m.state != "sent")


def test_a_receiver_that_is_down_gets_it_later_once_with_the_same_id(making: Make, http: Sink) -> None:
    w = making(notify_private_targets=True)
    hook(w, f"http://127.0.0.1:{http.port}/ok", "maya")
    (http.folder / "down").touch()
    cancelled(w)
    sending = sender(w)
    sending.step()
    assert http.requests == []
    (http.folder / "down").unlink()
    assert sending.step() == 0
    w.now += 30_000
    assert sending.step() == 1
    assert sending.step() == 0
    assert [json.loads(r["body"])["id"] for r in http.requests] == [outside(w)[0].id]


def test_peoples_own_targets_stay_out_of_the_network(making: Make, http: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    w = making()
    for host in (
        "127.0.0.1",
        "localhost",
        "[::1]",
        "169.254.169.254",
        "10.0.0.1",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "[64:ff9b::a00:1]",
        "[2002:7f00:1::]",
    ):
        said = w.bad(
            422, "POST", "/notification-targets", {"name": "x", "way": "webhook", "url": f"http://{host}:{http.port}/ok"}, "maya"
        )  # fmt: skip
        assert "inside this network" in said["error"]["details"]["url"], host
    real = socket.getaddrinfo
    answers = [[(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80))]]

    def turning(host: str, *args: Any, **more: Any) -> Any:
        if host != "turning.example":
            return real(host, *args, **more)
        return answers[-1]

    monkeypatch.setattr(socket, "getaddrinfo", turning)
    hook(w, f"http://turning.example:{http.port}/ok", "maya")
    answers.append([(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", http.port))])
    cancelled(w)
    sender(w).step()
    assert http.requests == []
    assert [m.state for m in outside(w)] == ["failed"]
    hook(w, f"http://127.0.0.1:{http.port}/ok")  # an administrator's
    hook(w, f"http://127.0.0.1:{http.port}/ok", shared=True)
    w.bad(
        403,
        "POST",
        "/notification-targets",
        {"name": "x", "way": "webhook", "url": "https://a.b/", "shared": True},
        "maya",
    )


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org",
        "http://",
        "https://user:pw@example.org/",
        "http://example.org:99999/",
        "nonsense",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_address_is_refused_in_words(url: str) -> None:
    with pytest.raises(Refused):
        webhook.checked(url)


def test_everybodys_failures_go_to_the_administrators_channels(making: Make, http: Sink) -> None:
    from controller.notify import inbox

    w = making()
    hook(w, f"http://127.0.0.1:{http.port}/trouble", shared=True)
    hook(w, f"http://127.0.0.1:{http.port}/asked", shared=True, kinds=["requested"])
    w.book(0, HOUR, "maya")
    with w.store.write() as session:
        inbox.tell_event(session, Failed())
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    w.book(HOUR, 2 * HOUR, "noor")
    sender(w).step()
    got = {r["path"]: json.loads(r["body"]) for r in http.requests}
    assert {p: b["kind"] for p, b in got.items()} == {"/trouble": "failed", "/asked": "requested"}
    assert got["/trouble"]["holder"] == "maya"
    assert "out of GPU memory" in str(got["/trouble"]["rows"])
    assert states(w) == [("webhook", "failed", "sent"), ("webhook", "requested", "sent")]


class Failed:
    id, kind, channel_id, subject = "f1", "failed", "a", "n1/a"
    text, at, reservation_id = "small failed: out of GPU memory; lower -c", 1_800_000_000_000, ""
    category, reason, model, preset, detail = (
        "out_of_memory",
        "out of GPU memory; lower -c",
        "small",
        None,
        "CUDA error",
    )


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("dingtalk://abcdefghijklmnop", "DingTalk"),
        ("dingtalk://SECret@abcdefghijklmnop/13800138000", "DingTalk"),
        ("https://oapi.dingtalk.com/robot/send?access_token=abcdefghijklmnop", "DingTalk"),
        ("feishu://abcdef01-2345-6789-abcd-ef0123456789", "Feishu"),
        ("https://open.feishu.cn/open-apis/bot/v2/hook/abcdef01-2345-6789-abcd-ef0123456789", "Feishu"),
        ("https://open.larksuite.com/open-apis/bot/v2/hook/abcdef01-2345-6789-abcd-ef0123456789", "Lark (Feishu)"),
        ("wecombot://1dc2cc7d-3f0c-4c8e-ab1d-000000000000", "WeCom Bot"),
        ("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=1dc2cc7d-3f0c-4c8e-ab1d-000000000000", "WeCom Bot"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "Slack"),
        ("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "Slack"),
        ("discord://123456789012345678/abcdefghijk", "Discord"),
        ("tgram://123456789:abcdefg_hijklmnop/12315544/", "Telegram"),
    ],
)
def test_addresses_of_chat_services_are_understood(url: str, service: str) -> None:
    assert chat.check(url, private=False) == service
    assert service.startswith(chat.service_name(url))
    assert url.split("://")[1][:6] not in chat.masked(url)


@pytest.mark.parametrize(
    "url", ["syslog://", "dbus://", "", "x", "dingtalk://", "mailto:a@b", "slack://x\n", "unknown://abc"]
)
def test_what_acts_on_this_machine_or_is_not_known_is_refused(url: str) -> None:
    with pytest.raises(Refused):
        chat.check(url, private=True)


def test_an_address_with_its_secret_never_reaches_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    """Apprise says what it could not load, whole."""
    ours = logging.StreamHandler()  # as the controller's own, at the root (caplog would hear it from apprise's logger)
    logging.getLogger().addHandler(ours)
    try:
        with pytest.raises(Refused):
            chat.check("slack://T1JJ3T3L2-secret", private=True)
    finally:
        logging.getLogger().removeHandler(ours)
    assert "secret" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "url", ["json://example.org/x", "mmost://example.org/abcdefghijklmnop", "ntfy://example.org/topic"]
)
def test_a_host_of_its_own_is_for_administrators(url: str) -> None:
    with pytest.raises(Refused, match="only administrators"):
        chat.check(url, private=False)
    chat.check(url, private=True)


def test_a_chat_service_gets_the_message_and_nobody_is_called(making: Make, http: Sink) -> None:
    w = making()
    body = {"name": "chat", "way": "chat", "url": f"json://127.0.0.1:{http.port}/ok", "kinds": ["cancelled"]}
    target = w.good("POST", "/notification-targets", body)
    assert target["url"] == "json://…"
    made = w.book(HOUR, 2 * HOUR, "root", holder="root")
    assert w.good("POST", f"/notification-targets/{target['id']}/test", {}) == {"ok": True, "error": None}
    with w.store.write() as session:
        from controller.notify.tell import Event, tell

        facts = {
            "channel": "n1/a",
            "model": "small",
            "starts_at": w.now,
            "ends_at": w.now + HOUR,
            "by": "<!channel> @all",
        }
        tell(session, Event("e", "cancelled", made["id"], w.now, facts), [w.ids["root"]])
    sender(w).step()
    test, real = (json.loads(r["body"]) for r in http.requests)
    assert test["title"] == "A test from SlotServe"
    assert real["title"].startswith("Cancelled: small on n1/a")
    assert "@all" not in real["message"]
    assert "<!" not in real["message"]
    assert states(w) == [("chat", "cancelled", "sent")]
    (http.folder / "down").touch()
    answer = w.good("POST", f"/notification-targets/{target['id']}/test", {})
    assert answer["ok"] is False
    assert "503" in answer["error"] or "Failed" in answer["error"]


def test_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch, making: Make) -> None:
    monkeypatch.setitem(__import__("sys").modules, "apprise", None)
    w = making()
    said = w.bad(
        422, "POST", "/notification-targets", {"name": "x", "way": "chat", "url": "dingtalk://abcdefghijklmnop"}
    )
    assert "slotserve[chat]" in said["error"]["message"]
    with pytest.raises(TryAgain, match="slotserve"):
        chat.send("dingtalk://abcdefghijklmnop", None, True)  # type: ignore[arg-type]


def test_targets_are_their_owners(making: Make) -> None:
    w = making(notify_private_targets=True)
    mine = hook(w, "https://127.0.0.1:1/x", "maya")
    path = f"/notification-targets/{mine['id']}"
    assert w.get("/notification-targets", "noor")["items"] == []
    for method in ("PATCH", "DELETE"):
        w.bad(404, method, path, {}, "noor")
    w.bad(404, "POST", f"{path}/test", {}, "noor")
    w.bad(403, "GET", "/notification-targets?shared=1", None, "maya")
    w.bad(422, "PATCH", path, {"kinds": ["nothing"]}, "maya")
    w.bad(422, "PATCH", path, {"zone": "Mars/North"}, "maya")
    w.bad(422, "PATCH", path, {"url": None}, "maya")
    changed = w.good(
        "PATCH", path, {"kinds": ["failed"], "enabled": False, "rotate_secret": True, "zone": None}, "maya"
    )
    assert (changed["kinds"], changed["enabled"]) == (["failed"], False)
    assert changed["secret"] != mine["secret"]
    cancelled(w)
    assert outside(w) == []  # switched off
    assert mine["secret"] not in json.dumps(w.get("/audit"))
    w.good("DELETE", path, who="maya")
    for _ in range(10):
        hook(w, "https://127.0.0.1:1/x", "maya")
    w.bad(409, "POST", "/notification-targets", {"name": "x", "way": "webhook", "url": "https://127.0.0.1:1/"}, "maya")
