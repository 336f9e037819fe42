"""Mail through a real SMTP server: what arrives, in whose words and zone; refusals, time-outs, TLS and log-in."""

from __future__ import annotations

import datetime
import smtplib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from controller.health import warnings
from controller.notify.ways import mail
from controller.notify.ways.message import Message, Refused, TryAgain
from controller.notify.wording import render
from controller.settings import Settings
from tests.controller.api.conftest import DAY, HOUR
from tests.controller.notify.conftest import Make, Sink, mailing, outside, person, sender, started, states
from tests.parts import BOTH, free_port

DATABASES = BOTH
HOSTILE = 'ev<il> "x"\r\nBcc: all@example.org\u202e'


def test_a_cancellation_arrives_in_the_holders_words_and_zone(making: Make, smtp: Sink) -> None:
    w = mailing(making, smtp)
    person(w, "maya", zone="Asia/Shanghai")
    person(w, "noor", locale="zh-CN", zone="Europe/Berlin")
    for who in ("maya", "noor"):
        made = w.book(DAY, DAY + 2 * HOUR, who, model="org/big model")
        w.good("POST", f"/reservations/{made['id']}/cancel", {"reason": "the card <b>is</b> broken"})
    assert sender(w).step() == 2
    english, chinese = smtp.mails
    assert english["To"] == "maya <maya@example.org>"
    assert english["From"] == "SlotServe <slots@example.org>"
    assert english["Subject"] == "Cancelled: org/big model on n1/a, Sat 16 Jan, 16:00–18:00"
    assert english["Auto-Submitted"] == "auto-generated"
    text = english.get_body(("plain",)).get_content()
    assert "root has cancelled your booking." in text
    assert "Reason: the card <b>is</b> broken" in text
    assert "When: Sat 16 Jan, 16:00–18:00 (Asia/Shanghai, UTC+8)" in text
    assert "https://slots.example.org/timeline" in text
    page = english.get_body(("html",)).get_content()
    assert "the card &lt;b&gt;is&lt;/b&gt; broken" in page
    assert 'href="https://slots.example.org/timeline"' in page
    assert "<script" not in page
    assert "src=" not in page
    words = chinese.get_body(("plain",)).get_content()
    assert "1月16日 周六 09:00–11:00" in words
    assert "Europe/Berlin" in words
    assert "root" in chinese["Subject"] + words
    assert "cancelled" not in words
    assert states(w) == [("email", "cancelled", "sent")] * 2


def test_nothing_that_people_type_gets_into_the_headers(making: Make, smtp: Sink) -> None:
    w = mailing(making, smtp)
    made = w.book(DAY, DAY + HOUR)
    w.good("POST", f"/reservations/{made['id']}/cancel", {"reason": HOSTILE})
    person(w, "maya", name=HOSTILE)
    with w.store.write() as session:
        for row in outside(w):
            row.payload = {**row.payload, "facts": {**row.payload["facts"], "model": HOSTILE, "channel": HOSTILE}}
            session.merge(row)
    assert sender(w).step() == 1
    (envelope,), (got,) = smtp.envelopes, smtp.mails
    assert envelope["to"] == ["maya@example.org"]
    assert got["Bcc"] is None
    assert len(got.get_all("To")) == 1
    assert "\u202e" not in got["Subject"]
    assert "\nBcc" not in got.get_body(("plain",)).get_content()


@pytest.mark.parametrize(
    "address", ["", "nobody", "a b@example.org", "x@y@z", "a@b\r\nBcc: c@d", "<script>@example.org"]
)
def test_an_address_that_is_none_is_refused_in_words(address: str) -> None:
    with pytest.raises(Refused):
        mail.build(Settings(), _message(), "maya", address, 0)


def test_a_mailbox_that_is_not_there_is_given_up_and_administrators_are_told(making: Make, smtp: Sink) -> None:
    w = mailing(making, smtp)
    person(w, "maya", email="nobody@example.org")
    made = w.book(DAY, DAY + HOUR)
    w.good("POST", f"/reservations/{made['id']}/cancel", {"reason": "x"})
    sender(w).step()
    assert smtp.mails == []
    (said,) = w.get("/notifications/outbox?state=failed")["items"]
    assert (said["to"], said["attempts"]) == ("maya", 1)
    assert "550 5.1.1 no such mailbox" in said["error"]
    notice = w.get("/notifications")["items"][0]
    assert notice["kind"] == "delivery_failed"
    assert "no such mailbox" in notice["text"]
    problems = w.get("/notifications/delivery")["problems"]
    assert [(p["way"], p["to"], p["given_up"]) for p in problems] == [("email", "maya", True)]
    assert warnings(w.ctx) == [
        "1 messages by email do not get through; slotserve notifications delivery tells administrators why"
    ]
    assert 'slotserve_messages{state="failed"} 1.0' in w.call("GET", "/metrics").get_data(as_text=True)
    person(w, "maya", email="maya@example.org")
    w.good("POST", f"/notifications/outbox/{said['id']}/retry", {})
    w.bad(409, "POST", f"/notifications/outbox/{said['id']}/retry", {})
    w.bad(403, "GET", "/notifications/outbox", None, "maya")
    sender(w).step()
    assert len(smtp.mails) == 1


@pytest.mark.parametrize("how", ["busy", "later", "down"])
def test_what_may_do_better_later_is_tried_again_at_growing_intervals(making: Make, smtp: Sink, how: str) -> None:
    w = mailing(making, smtp, **({"smtp_port": free_port()} if how == "down" else {}))
    if how == "later":
        person(w, "maya", email="later@example.org")
    if how == "busy":
        smtp.behave("busy")
    for hour in (1, 3):
        made = w.book(hour * HOUR, (hour + 1) * HOUR)
        w.good("POST", f"/reservations/{made['id']}/cancel", {"reason": "x"})
    sending, waits = sender(w), []
    for _ in range(4):
        assert sending.step() == 2
        assert sending.step() == 0
        due = {m.due_at for m in outside(w)}
        waits.append((min(due) - w.now) // 1000)
        w.now = max(due)
    assert waits == [30, 60, 120, 300]
    assert {m.attempts for m in outside(w)} == {4}
    word = {"busy": "451", "later": "450", "down": "refused"}[how]
    assert all(word in m.error for m in outside(w))
    smtp.behave("")
    if how == "busy":
        sending.step()
        assert [m.state for m in outside(w)] == ["sent", "sent"]
        ids = [m["Message-ID"] for m in smtp.mails]
        assert ids == [f"<{m.id}@example.org>" for m in outside(w)]


def test_a_mail_that_never_gets_through_is_given_up_after_so_many_tries(making: Make, smtp: Sink) -> None:
    w = mailing(making, smtp, smtp_port=free_port(), notify_attempts=3)
    made = w.book(HOUR, 2 * HOUR)
    w.good("POST", f"/reservations/{made['id']}/cancel", {"reason": "x"})
    sending = sender(w)
    for _ in range(3):
        sending.step()
        w.now += HOUR
    (row,) = [m for m in outside(w) if m.kind == "cancelled"]
    assert (row.state, row.attempts) == ("failed", 3)
    assert sending.step() == 0


def test_one_server_that_hangs_is_asked_once_for_many_mails(
    making: Make, smtp: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail.Mailer.__init__, "__defaults__", (0.3,))
    w = mailing(making, smtp)
    smtp.behave("hang")
    for hour in range(1, 9, 2):
        made = w.book(hour * HOUR, (hour + 1) * HOUR)
        w.good("POST", f"/reservations/{made['id']}/cancel", {"reason": "x"})
    tries: list[int] = []
    connect = mail.Mailer._connect

    def counted(self: mail.Mailer) -> smtplib.SMTP:
        tries.append(1)
        return connect(self)

    monkeypatch.setattr(mail.Mailer, "_connect", counted)
    assert sender(w).step() == 4
    assert len(tries) == 1
    assert {m.state for m in outside(w)} == {"waiting"}
    assert all("timed out" in m.error for m in outside(w))


def test_without_a_mail_server_nothing_waits(making: Make) -> None:
    w = making()
    person(w, "maya", email="maya@example.org")
    made = w.book(HOUR, 2 * HOUR)
    w.good("POST", f"/reservations/{made['id']}/cancel", {"reason": "x"})
    sender(w).step()
    assert states(w) == [("email", "cancelled", "dropped")]
    assert "no mail server" in outside(w)[0].error
    assert w.get("/notifications", "maya")["unread"] == 1


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_protected_and_logged_in(tmp_path: Path, security: str) -> None:
    folder = tmp_path / "secure"
    folder.mkdir()
    certificate(folder)
    for sink in started(folder, "tests.fakes.smtp_sink", security, "slots:secret"):
        good = {"smtp_host": "localhost", "smtp_port": sink.port, "smtp_security": security, "smtp_username": "slots"}
        good |= {"smtp_password": "secret", "smtp_ca_file": str(folder / "cert.pem")}
        _send(Settings(**good))
        assert len(sink.mails) == 1
        with pytest.raises(TryAgain, match=r"log-in refused.*535"):
            _send(Settings(**{**good, "smtp_password": "wrong"}))
        with pytest.raises(TryAgain, match=r"TLS: .*certificate"):
            _send(Settings(**{**good, "smtp_ca_file": ""}))
        with pytest.raises(TryAgain):
            _send(Settings(**{**good, "smtp_security": "none", "smtp_username": ""}), 0.5)


def test_a_server_without_starttls_is_not_talked_to_in_the_clear(smtp: Sink) -> None:
    with pytest.raises(TryAgain, match="has no STARTTLS"):
        _send(Settings(smtp_host="127.0.0.1", smtp_port=smtp.port))
    assert smtp.mails == []


def test_a_test_mail_answers_at_once(making: Make, smtp: Sink) -> None:
    w = mailing(making, smtp)
    assert w.good("POST", "/me/notifications/test", {}, "maya") == {"ok": True, "error": None}
    assert smtp.mails[0]["Subject"] == "A test from SlotServe"
    person(w, "maya", email="nobody@example.org")
    answer = w.good("POST", "/me/notifications/test", {}, "maya")
    assert answer["ok"] is False
    assert "550" in answer["error"]
    person(w, "maya", email=None)
    w.bad(409, "POST", "/me/notifications/test", {}, "maya")


def _send(settings: Settings, timeout: float = 20) -> None:
    with mail.Mailer(settings, timeout) as mailer:
        mailer.send(mail.build(settings, _message(), "maya", "maya@example.org", 0))


def _message() -> Message:
    return Message("1", "e", "test", 0, "", {}, render("test", {}), "en", "", "")


def certificate(folder: Path) -> None:
    """One for localhost that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
