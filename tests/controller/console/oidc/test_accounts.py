"""Whose account a sign-in by an identity provider opens, and with which role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from controller import oidc_accounts
from controller.settings import Settings
from controller.store.tables import User
from tests.console_scene import Scene
from tests.controller.console.oidc.signing import alert, console, lies, there_and_back, trail, user, who


def test_a_disabled_person_stays_out(world: Scene, liar: str) -> None:
    client = world.app.test_client()
    there_and_back(client)
    with world.store.write() as db:
        db.get(User, user(world, "mei").id).disabled_at = world.now
    assert who(client) is None
    answer = there_and_back(client)
    assert answer.status_code == 403
    assert "disabled" in alert(answer)
    assert who(client) is None


@pytest.mark.parametrize(
    ("settings", "person", "says"),
    [
        ({"oidc_allowed_groups": "gpu, lab"}, {"groups": ["other"]}, "Your groups"),
        ({"oidc_allowed_groups": "gpu, lab"}, {}, "Your groups"),
        ({"oidc_allowed_domains": "lab.example"}, {}, "Your e-mail address"),
        ({"oidc_allowed_domains": "example.org"}, {"email_verified": False}, "Your e-mail address"),
        ({"oidc_allowed_domains": "example.org"}, {"email": "mei@evil.example.org.example"}, "Your e-mail address"),
        ({"oidc_create": False}, {}, "no account for you"),
        ({"oidc_allowed_groups": "gpu, lab"}, {"groups": ["lab"]}, None),
        ({"oidc_allowed_domains": "lab.example, EXAMPLE.org"}, {}, None),
    ],
)
def test_who_may_come_in(
    tmp_path: Path, liar: str, settings: dict[str, Any], person: dict[str, Any], says: str | None
) -> None:
    lies(liar, user=person)
    world = console(tmp_path, liar, **settings)
    client = world.app.test_client()
    answer = there_and_back(client)
    lies(liar)
    if says is None:
        assert who(client) == "mei"
    else:
        assert answer.status_code == 403
        assert says in alert(answer)
        assert who(client) is None


def test_groups_give_the_role_at_every_sign_in(tmp_path: Path, liar: str) -> None:
    world = console(tmp_path, liar, oidc_admin_groups="root", oidc_approver_groups="leads,heads")
    for groups, role in ((["heads"], "approver"), (["root", "leads"], "admin"), ([], "user")):
        lies(liar, user={"groups": groups})
        client = world.app.test_client()
        there_and_back(client)
        assert client.get("/api/v1/me").get_json()["role"] == role
    assert [(a.before["role"], a.after["role"]) for a in trail(world, "user.change")] == [
        ("user", "approver"),
        ("approver", "admin"),
        ("admin", "user"),
    ]
    lies(liar)


def test_the_last_administrator_stays_one(tmp_path: Path, liar: str) -> None:
    world = console(tmp_path, liar, oidc_admin_groups="root")
    with world.store.write() as db:
        for row in db.scalars(select(User).where(User.role == "admin")):
            row.role = "user" if row.name != "lin" else "admin"
            row.email = "mei@example.org" if row.name == "lin" else None
    lies(liar)
    client = world.app.test_client()
    there_and_back(client)
    assert (who(client), user(world, "lin").role) == ("lin", "admin")


def test_the_account_with_the_same_verified_address_is_opened(world: Scene, liar: str, tmp_path: Path) -> None:
    with world.store.write() as db:
        db.get(User, world.ids["maya"]).email = "Mei@Example.org"
    lies(liar, user={"email_verified": False})
    client = world.app.test_client()
    there_and_back(client)
    assert who(client) == "mei"  # not verified: somebody of their own
    lies(liar, user={"sub": "7"})
    client = world.app.test_client()
    there_and_back(client)
    assert who(client) == "maya"
    assert client.get("/api/v1/me").get_json()["sign_in"] == "oidc"  # maya has no password
    lies(liar, user={"sub": "8"})  # the same address, but the account belongs to 7 now
    client = world.app.test_client()
    there_and_back(client)
    assert who(client) == "mei 2"
    assert [a.subject for a in trail(world, "user.connect")] == [world.ids["maya"]]
    assert "email: decides" in _refused_email(world, "maya")


def _refused_email(world: Scene, name: str) -> str:
    headers = {"Authorization": f"Bearer {world.keys[name]}"}
    answer = world.app.test_client().patch(f"/api/v1/users/{world.ids[name]}", json={"email": "a@b.c"}, headers=headers)
    assert answer.status_code == 403
    return answer.get_json()["error"]["message"]


def test_two_accounts_with_one_address_or_no_wish_to_link(tmp_path: Path, liar: str) -> None:
    lies(liar)
    for number, (linked, names) in enumerate((("email", ("maya", "lin")), ("never", ("maya",)))):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = console(folder, liar, oidc_link=linked)
        with world.store.write() as db:
            for name in names:
                db.get(User, world.ids[name]).email = "mei@example.org"
        client = world.app.test_client()
        there_and_back(client)
        assert who(client) == "mei"


def test_a_signed_in_person_connects_their_own_account(world: Scene, liar: str) -> None:
    client = world.client("maya")
    assert there_and_back(client, "/login/oidc?connect=1&next=/account").headers["Location"] == "/account"
    assert who(client) == "maya"
    other = world.app.test_client()
    there_and_back(other)
    assert who(other) == "maya"
    lin = world.client("lin")
    answer = there_and_back(lin, "/login/oidc?connect=1")
    assert answer.status_code == 403
    assert "another account already" in alert(answer)
    assert user(world, "lin").subject is None


def test_names_that_cannot_be_stored(world: Scene, liar: str) -> None:
    lies(liar, user={"preferred_username": "a\r\nb\u2028c\u0000" + "d" * 300})
    client = world.app.test_client()
    there_and_back(client)
    assert (who(client) or "").startswith("abcd")
    lies(liar, user={"preferred_username": "\u0007", "sub": "9", "name": "", "email": None})
    client = world.app.test_client()
    there_and_back(client)
    assert who(client) == "9"


def test_groups_lie_where_the_setting_says() -> None:
    claims = {"iss": "i", "sub": "s", "realm_access": {"roles": ["a", 1, "b"]}, "one": "c"}
    for path, groups in (("realm_access.roles", {"a", "b"}), ("one", {"c"}), ("none.such", set()), ("one.x", set())):
        settings = Settings(oidc_groups_claim=path)
        assert oidc_accounts.named(claims, settings).groups == groups
