"""Signing in by an identity provider: real provider processes, one of somebody else's making, one that can lie."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from controller.settings import SettingsError, load_settings
from controller.store import users
from tests.console_scene import Scene, scene
from tests.controller.console.oidc.signing import alert, console, lies, there_and_back, trail, user, who
from tests.parts import free_port, running, wait_until


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


def test_without_a_provider_there_is_nothing(tmp_path: Path) -> None:
    world = scene(tmp_path)
    client = world.app.test_client()
    assert "/login/oidc" not in client.get("/login").text
    assert client.get("/login/oidc").status_code == 404
    assert client.get("/login/oidc/callback").status_code == 404


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
