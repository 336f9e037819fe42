"""Others' secrets in the database: sealed, opened by the right key alone, brought up to a new one, and lost in words."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import select, update

from controller import backup, vault
from controller.fleet import shared_secrets
from controller.fleet.ca import CertificateAuthority
from controller.notify.ways.message import TryAgain
from controller.settings import Settings
from controller.store import audit
from controller.store.tables import Leader, NotificationTarget
from controller.vault import BadKey, Locked
from tests.controller.api.conftest import HOUR, World, make
from tests.controller.notify.conftest import outside, sender
from tests.parts import BOTH

DATABASES = BOTH
CHAT = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
HOOK = "https://127.0.0.1:1/path?token=abc"


@pytest.fixture
def w(tmp_path: Path, database_url: str) -> Any:
    world = make(tmp_path, database_url, notify_private_targets=True)
    yield world
    world.store.close()


def add(w: World, **more: Any) -> dict[str, Any]:
    return w.good("POST", "/notification-targets", {"name": "x", "way": "webhook", "url": HOOK, **more}, "maya")


def kept(w: World) -> list[tuple[str, str | None]]:
    with w.store.read() as session:
        query = select(NotificationTarget).order_by(NotificationTarget.id)
        return [(r.url, r.secret) for r in session.scalars(query)]


def key_file(w: World) -> Path:
    return w.ctx.settings.state_dir / vault.FILE


def again(w: World, **settings: Any) -> World:
    """The controller started anew: it reads its key again."""
    w.ctx.extra.pop("vault", None)
    w.ctx.settings = w.ctx.settings.model_copy(update=settings)
    return w


def test_what_opens_somebodys_place_does_not_stand_in_the_database(w: World) -> None:
    made = add(w)
    add(w, way="chat", url=CHAT)
    w.good("PATCH", f"/notification-targets/{made['id']}", {"url": HOOK + "2"}, "maya")
    for url, secret in kept(w):
        assert url.startswith(vault.SEALED)
        assert secret is None or secret.startswith(vault.SEALED)
    with w.store.read() as session:
        trail = str([(a.before, a.after) for a in audit.page(session, 100)])
    for secret in ("token=abc", "TIiajkdnlazkcOXrIdevi7FQ", made["secret"]):
        assert secret not in str(kept(w))
        assert secret not in trail
    box = vault.of(w.ctx)
    assert [box.open(url) for url, _ in kept(w)] == [HOOK + "2", CHAT]
    assert box.open(kept(w)[0][1] or "") == made["secret"]
    assert stat.S_IMODE(key_file(w).stat().st_mode) == 0o600


def test_rows_of_before_are_sealed_at_the_start_once(w: World) -> None:
    add(w)
    with w.store.write() as session:
        session.execute(update(NotificationTarget).values(url=HOOK, secret="whsec_old"))
    assert w.get("/notification-targets", "maya")["items"][0]["url"] == "https://127.0.0.1:1/…"  # read as they are
    box = vault.of(w.ctx)
    assert vault.renew(w.store, box) == (2, 0)
    assert vault.renew(w.store, box) == (0, 0)
    ((url, secret),) = kept(w)
    assert (box.open(url), box.open(secret or "")) == (HOOK, "whsec_old")
    assert HOOK not in url


def test_a_key_is_replaced_by_a_line_above_it(w: World) -> None:
    add(w)
    old, new = key_file(w).read_bytes(), Fernet.generate_key()
    key_file(w).write_bytes(new + b"\n" + old)
    box = vault.of(again(w).ctx)
    assert vault.renew(w.store, box) == (2, 0)
    key_file(w).write_bytes(new + b"\n")
    only_new = vault.of(again(w).ctx)
    assert only_new.open(kept(w)[0][0]) == HOOK
    assert vault.renew(w.store, only_new) == (0, 0)
    # The same key by the setting is the same vault.
    assert vault.opened(Settings(state_dir=Path("/nowhere"), secrets_key=new.decode())).open(kept(w)[0][0]) == HOOK


def test_a_lost_key_is_said_clearly_and_what_it_sealed_is_set_anew(w: World) -> None:
    made = add(w)
    key_file(w).unlink()
    assert "is not there, and 2 secrets need it" in vault.trouble(w.store, w.ctx.settings)
    box = vault.of(again(w).ctx)  # the next start makes another one
    assert vault.renew(w.store, box) == (0, 1)
    assert "another key" in vault.trouble(w.store, w.ctx.settings)
    listed = w.get("/notification-targets", "maya")["items"][0]
    assert (listed["readable"], listed["url"]) == (False, "")
    tried = w.good("POST", f"/notification-targets/{made['id']}/test", {}, "maya")
    assert tried["ok"] is False
    assert "slotserve backup" in tried["error"]
    booked = w.book(HOUR, 2 * HOUR)
    w.good("POST", f"/reservations/{booked['id']}/cancel", {"reason": "no"})
    sender(w).step()
    (message,) = outside(w)
    assert (message.state, "another key" in message.error) == ("waiting", True)  # another controller may have the key
    anew = w.good("PATCH", f"/notification-targets/{made['id']}", {"url": HOOK}, "maya")
    assert anew["readable"]
    assert anew["secret"] != made["secret"]  # the old one is lost as well, and a receiver needs to know the new one
    assert vault.trouble(w.store, w.ctx.settings) == ""


@pytest.mark.parametrize(
    ("text", "word"), [(b"", "is empty"), (b"nonsense\n", "line 1 is no key"), (b"\xff" * 44, "line 1")]
)
def test_a_key_that_is_none_is_refused_and_never_replaced(tmp_path: Path, text: bytes, word: str) -> None:
    (tmp_path / vault.FILE).write_bytes(text)
    settings = Settings(state_dir=tmp_path)
    with pytest.raises(BadKey, match=word):
        vault.opened(settings)
    assert (tmp_path / vault.FILE).read_bytes() == text


def test_texts_are_opened_by_their_own_key_alone(tmp_path: Path) -> None:
    boxes = [vault.opened(Settings(state_dir=tmp_path / name)) for name in ("a", "b")]
    sealed = boxes[0].seal("näher 秘密")
    assert boxes[0].open(sealed) == "näher 秘密"
    with pytest.raises(Locked, match=str(tmp_path / "b")):
        boxes[1].open(sealed)
    with pytest.raises(Locked):
        boxes[0].open(sealed[:-4])  # cut short
    assert boxes[0].fingerprint() != boxes[1].fingerprint()


def test_controllers_of_one_database_have_the_same_key(w: World, tmp_path: Path) -> None:
    first, second = (Settings(state_dir=tmp_path / name) for name in ("first", "second"))
    CertificateAuthority(first.state_dir / "ca")
    vault.opened(first)
    with w.store.write() as session:
        if session.get(Leader, 1) is None:
            session.add(Leader(id=1, epoch=1, holder="", renewed_at=0, fleet_address="", secrets={}))
    assert shared_secrets.differing(w.store, first) == ""
    shared_secrets.remember(w.store, first)
    told = shared_secrets.differing(w.store, second)
    assert (vault.FILE in told) is (not w.store.sqlite)
    if not w.store.sqlite:
        (second.state_dir).mkdir()
        (second.state_dir / vault.FILE).write_bytes((first.state_dir / vault.FILE).read_bytes())
        assert "secrets.key differ" not in shared_secrets.differing(w.store, second)
        by_setting = second.model_copy(update={"secrets_key": Fernet.generate_key().decode()})
        assert vault.VARIABLE in shared_secrets.differing(w.store, by_setting)


def test_the_key_is_part_of_a_backup_and_comes_back_with_it(tmp_path: Path) -> None:
    w = make(tmp_path, notify_private_targets=True)
    add(w)
    settings = w.ctx.settings
    CertificateAuthority(settings.state_dir / "ca")
    contents = backup.backup(settings, tmp_path / "saved", w.now)
    assert vault.FILE in contents.files
    w.store.close()
    key_file(w).write_bytes(Fernet.generate_key())
    _, aside = backup.restore(settings, tmp_path / "saved", w.now)
    assert aside is not None
    assert (aside / vault.FILE).exists()
    back = make_again(settings)
    assert vault.trouble(back, settings) == ""
    back.close()


def make_again(settings: Settings) -> Any:
    from controller.store.session import Store

    return Store(settings.database)


def test_a_message_that_cannot_be_opened_is_tried_again(w: World) -> None:
    from controller.notify import delivery

    letter = delivery.Letter(None, "webhook", "x", "", locked="no key")  # type: ignore[arg-type]
    with pytest.raises(TryAgain, match="no key"):
        delivery.send(w.ctx.settings, letter, w.now)
    assert json.dumps(w.get("/settings")).count("SLOTSERVE_SECRETS_KEY") == 1
