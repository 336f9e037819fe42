"""Signing in by an identity provider: real provider processes, one of somebody else's making, one that can lie."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import select

from controller import oidc_accounts
from controller.settings import Settings, SettingsError, load_settings
from controller.store import users
from controller.store.tables import Audit, User, WebSession
from tests.console_scene import Scene, scene
from tests.fakes.oidc_provider import CLIENT, SECRET
from tests.parts import free_port, running, wait_until


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the provider that can lie."""
    log = tmp_path_factory.mktemp("provider") / "log"
    with running([sys.executable, "-m", "tests.fakes.oidc_provider"], log) as child:
        port = wait_until(lambda: re.match(r"(\d+)\n", child.output()), 30, "the provider's port")[1]
        yield f"http://127.0.0.1:{port}"


def lies(issuer: str, **what: Any) -> None:
    httpx.post(f"{issuer}/lie", json=what).raise_for_status()


def console(folder: Path, issuer: str, **settings: Any) -> Scene:
    world = scene(folder, oidc_issuer=issuer, oidc_client_id=CLIENT, oidc_client_secret=SECRET, **settings)
    world.now = round(time.time() * 1000)
    return world


@pytest.fixture
def world(tmp_path: Path, liar: str) -> Iterator[Scene]:
    lies(liar)
    yield console(tmp_path, liar)
    lies(liar)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, liar: str) -> Scene:
    """For tests after which nobody is signed in."""
    return console(tmp_path_factory.mktemp("shared"), liar)


def there_and_back(client: Any, start: str = "/login/oidc?next=/%3Fx%3D1") -> Any:
    """What a browser does: to the provider, which sends it back at once."""
    answer = client.get(start)
    assert answer.status_code == 302, answer.text
    back = urlsplit(httpx.get(answer.headers["Location"]).headers["Location"])
    return client.get(f"{back.path}?{back.query}")


def who(client: Any) -> str | None:
    answer = client.get("/api/v1/me")
    return answer.get_json()["name"] if answer.status_code == 200 else None


def user(world: Scene, name: str) -> User:
    with world.store.read() as db:
        found = users.by_name(db, name)
        assert found is not None
        return found


def trail(world: Scene, action: str) -> list[Audit]:
    with world.store.read() as db:
        return list(db.scalars(select(Audit).where(Audit.action == action).order_by(Audit.id)))


def alert(answer: Any) -> str:
    return re.search(r'role="alert".*?<b>(.*?)</b>', answer.text, re.DOTALL)[1]


def test_the_first_sign_in_makes_an_account_and_the_next_ones_open_it(world: Scene, liar: str) -> None:
    client = world.app.test_client()
    page = client.get("/login?next=/timeline").text
    assert 'href="/login/oidc?next=/timeline"' in page
    assert "Sign in with 127.0.0.1" in page
    answer = there_and_back(client)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/?x=1")
    assert who(client) == "mei"
    made = user(world, "mei")
    assert (made.role, made.email, made.subject, made.password_hash) == ("user", "mei@example.org", f"{liar}|42", None)
    assert client.get("/api/v1/me").get_json()["sign_in"] == "oidc"
    again = world.app.test_client()
    lies(liar, user={"preferred_username": "another name", "email": "mei@elsewhere.example"})
    there_and_back(again)
    assert who(again) == "mei"
    assert user(world, "mei").email == "mei@elsewhere.example"
    assert len(trail(world, "user.create")) == 1
    assert [a.after["way"] for a in trail(world, "session.begin")] == ["oidc", "oidc"]
    assert client.get("/login/oidc").headers["Location"] == "/"  # signed in already


@pytest.mark.parametrize(
    "lie",
    [
        {"claims": {"nonce": "of another sign-in"}},
        {"claims": {"nonce": None}},
        {"claims": {"aud": "another console"}},
        {"claims": {"aud": ["slotserve", "other"]}},  # and no azp
        {"claims": {"aud": ["slotserve", "other"], "azp": "other"}},
        {"claims": {"aud": None}},
        {"claims": {"iss": "https://evil.example"}},
        {"claims": {"exp": 1}},
        {"claims": {"exp": None}},
        {"claims": {"iat": 4_000_000_000}},
        {"claims": {"sub": None}},
        {"claims": {"sub": 42}},
        {"sign": "none"},
        {"sign": "HS256"},
        {"sign": "stranger"},
        {"userinfo": {"sub": "43"}},
    ],
    ids=str,
)
def test_a_token_that_is_not_what_it_must_be_signs_nobody_in(shared: Scene, liar: str, lie: dict[str, Any]) -> None:
    world = shared
    lies(liar, **lie)
    client = world.app.test_client()
    answer = there_and_back(client)
    assert answer.status_code == 401
    assert "cannot be trusted" in alert(answer)
    assert who(client) is None
    with world.store.read() as db:
        assert users.by_name(db, "mei") is None
    assert trail(world, "session.refused")[-1].reason.startswith("token:")
    lies(liar)


def test_new_keys_of_the_provider_are_fetched(world: Scene, liar: str) -> None:
    assert there_and_back(world.app.test_client()).status_code == 302
    lies(liar, sign="rotate")
    assert there_and_back(world.app.test_client()).status_code == 302


def test_what_only_the_user_info_endpoint_tells(world: Scene, liar: str) -> None:
    lies(liar, userinfo={"preferred_username": "from the endpoint"})
    client = world.app.test_client()
    there_and_back(client)
    assert who(client) == "from the endpoint"


def test_a_sign_in_belongs_to_the_browser_that_began_it(world: Scene, liar: str) -> None:
    client, other = world.app.test_client(), world.app.test_client()
    back = urlsplit(httpx.get(client.get("/login/oidc").headers["Location"]).headers["Location"])
    stolen = other.get(f"{back.path}?{back.query}")
    assert (stolen.status_code, who(other)) == (400, None)
    assert "another window" in alert(stolen)
    wrong = client.get(back.path + "?" + back.query.replace("state=", "state=x"))
    assert (wrong.status_code, who(client)) == (400, None)
    assert client.get(f"{back.path}?{back.query}").status_code == 400  # one try a sign-in

    client.get("/login/oidc")
    late = urlsplit(httpx.get(client.get("/login/oidc").headers["Location"]).headers["Location"])
    world.now += 601_000
    assert client.get(f"{late.path}?{late.query}").status_code == 400


def test_signing_out_ends_the_session_at_the_provider_too(world: Scene, liar: str) -> None:
    client = world.app.test_client()
    with httpx.Client() as browser:  # the same person's browser, as the provider sees it
        back = urlsplit(browser.get(client.get("/login/oidc").headers["Location"]).headers["Location"])
        client.get(f"{back.path}?{back.query}")
        assert (who(client), browser.get(f"{liar}/session").json()) == ("mei", {"signed_in": True})
        with world.store.read() as db:
            (kept,) = db.scalars(select(WebSession.id_token).where(WebSession.ended_at.is_(None)))
        assert kept.startswith("sealed:")
        page = client.post("/logout", data={"csrf_token": _csrf(client)})
        assert (page.status_code, who(client)) == (200, None)
        assert "You are signed out here" in page.text
        onwards = page.headers["Refresh"].removeprefix("0; url=")
        assert f'href="{onwards.replace("&", "&amp;")}"' in page.text
        assert onwards.startswith(f"{liar}/end?id_token_hint=ey")
        answer = browser.get(onwards)
        assert (answer.status_code, answer.headers["Location"]) == (302, "http://localhost/login")
        assert browser.get(f"{liar}/session").json() == {"signed_in": False}
    assert trail(world, "session.end")[-1].after == {"provider": True}
    with world.store.read() as db:
        assert list(db.scalars(select(WebSession.id_token).where(WebSession.id_token.is_not(None)))) == []


@pytest.mark.parametrize(
    ("settings", "lie"),
    [
        ({}, {"metadata": {"end_session_endpoint": None}}),
        ({}, {"metadata": {"end_session_endpoint": "javascript:alert(1)"}}),
        ({"oidc_end_session": False}, {}),
    ],
    ids=["not offered", "no address", "switched off"],
)
def test_signing_out_stays_here_where_the_provider_takes_no_part(
    tmp_path: Path, liar: str, settings: dict[str, Any], lie: dict[str, Any]
) -> None:
    lies(liar, **lie)
    world = console(tmp_path, liar, **settings)
    client = world.app.test_client()
    there_and_back(client)
    answer = client.post("/logout", data={"csrf_token": _csrf(client)})
    assert (answer.status_code, answer.headers["Location"], who(client)) == (302, "/login", None)
    lies(liar)


def test_signing_out_works_while_the_provider_is_down(tmp_path: Path, liar: str) -> None:
    world = console(tmp_path, liar)
    client = world.app.test_client()
    there_and_back(client)
    world.ctx.settings = world.ctx.settings.model_copy(update={"oidc_issuer": f"http://127.0.0.1:{free_port()}"})
    world.ctx.extra.pop("oidc")  # a controller that was restarted meanwhile
    assert client.post("/logout", data={"csrf_token": _csrf(client)}).headers["Location"] == "/login"
    assert who(client) is None


def test_a_password_session_ends_here_alone(world: Scene, liar: str) -> None:
    client = world.client("maya")
    assert client.post("/logout", data={"csrf_token": _csrf(client)}).headers["Location"] == "/login"
    assert trail(world, "session.end")[-1].after is None


def test_the_session_from_before_knows_nothing_of_the_new_one(world: Scene) -> None:
    client = world.client("maya")
    with client.session_transaction() as session:
        before = session["session"]
        session["planted"] = "x"
    client.post("/logout", data={"csrf_token": _csrf(client)})
    there_and_back(client)
    with client.session_transaction() as session:
        assert session["session"] != before
        assert "planted" not in session
        assert "oidc" not in session


def _csrf(client: Any) -> str:
    return re.search(r'name="csrf_token" value="([^"]+)"', client.get("/").text)[1]


def test_refused_at_the_provider(world: Scene, liar: str) -> None:
    lies(liar, error="access_denied")
    answer = there_and_back(world.app.test_client())
    assert answer.status_code == 401
    assert "has refused the sign-in" in alert(answer)
    assert trail(world, "session.refused")[0].reason == "refused: access_denied no, thank you"


@pytest.mark.parametrize("lie", [{"metadata": {"issuer": "https://evil.example"}}, {"metadata": {"jwks_uri": None}}])
def test_a_provider_that_is_not_the_one_of_the_settings(world: Scene, liar: str, lie: dict[str, Any]) -> None:
    lies(liar, **lie)
    answer = world.app.test_client().get("/login/oidc")
    assert answer.status_code == 503
    assert "does not answer as it should" in alert(answer)


def test_a_provider_that_is_down_is_said_and_passwords_go_on(tmp_path: Path, liar: str) -> None:
    world = console(tmp_path, f"http://127.0.0.1:{free_port()}")
    client = world.app.test_client()
    answer = client.get("/login/oidc?next=/timeline")
    assert answer.status_code == 503
    assert "Try again later, or sign in with a password" in alert(answer)
    assert 'name="password"' in answer.text
    assert 'value="/timeline"' in answer.text
    assert trail(world, "session.refused") == []


def test_a_token_endpoint_that_is_out_of_order(world: Scene, liar: str) -> None:
    lies(liar, token_status=502)
    answer = there_and_back(world.app.test_client())
    assert answer.status_code in (401, 503)
    assert who(world.app.test_client()) is None


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


def test_without_a_provider_there_is_nothing(tmp_path: Path) -> None:
    world = scene(tmp_path)
    client = world.app.test_client()
    assert "/login/oidc" not in client.get("/login").text
    assert client.get("/login/oidc").status_code == 404
    assert client.get("/login/oidc/callback").status_code == 404


def test_groups_lie_where_the_setting_says() -> None:
    claims = {"iss": "i", "sub": "s", "realm_access": {"roles": ["a", 1, "b"]}, "one": "c"}
    for path, groups in (("realm_access.roles", {"a", "b"}), ("one", {"c"}), ("none.such", set()), ("one.x", set())):
        settings = Settings(oidc_groups_claim=path)
        assert oidc_accounts.named(claims, settings).groups == groups


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"SLOTSERVE_OIDC_ISSUER": "http://login.example.org"}, "must begin with https://"),
        ({"SLOTSERVE_OIDC_ISSUER": "https://login.example.org"}, "SLOTSERVE_OIDC_CLIENT_ID: is needed"),
        ({"SLOTSERVE_PUBLIC_URL": "slots.example.org"}, "SLOTSERVE_PUBLIC_URL: write it with its scheme"),
    ],
)
def test_settings_that_cannot_work(environ: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(environ)
    assert says in str(refused.value)


def test_with_a_provider_of_somebody_else(tmp_path: Path) -> None:
    """`oidc-provider-mock` from PyPI: its own discovery, keys, form and tokens."""
    port = free_port()
    issuer, log = f"http://127.0.0.1:{port}", tmp_path / "log"
    claims = '{"sub": "zoe", "email": "zoe@example.org", "email_verified": true, "groups": ["gpu"]}'
    with running([sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--user-claims", claims], log):

        def answers() -> bool:
            try:
                return httpx.get(f"{issuer}/.well-known/openid-configuration").status_code == 200
            except httpx.HTTPError:
                return False

        wait_until(answers, 60, "the provider answers", every=0.1)
        world = console(
            tmp_path, issuer, public_url="http://console.example", oidc_allowed_groups="gpu", oidc_label="The lab",
            oidc_name_claim="sub",
        )  # fmt: skip
        client = world.app.test_client()
        assert "Sign in with The lab" in client.get("/login").text
        place = client.get("/login/oidc").headers["Location"]
        form = httpx.post(place, data={"sub": "zoe"})
        back = urlsplit(form.headers["Location"])
        assert f"{back.scheme}://{back.netloc}{back.path}" == "http://console.example/login/oidc/callback"
        assert client.get(f"{back.path}?{back.query}").status_code == 302
        assert who(client) == "zoe"
        assert user(world, "zoe").email == "zoe@example.org"

        denied = httpx.post(world.app.test_client().get("/login/oidc").headers["Location"], data={"action": "deny"})
        assert "access_denied" in denied.headers["Location"]
