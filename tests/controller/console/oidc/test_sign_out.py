"""Signing out of a session that an identity provider began: here and, where it takes part, there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import select

from controller.store.tables import WebSession
from tests.console_scene import Scene
from tests.controller.console.oidc.signing import console, lies, there_and_back, trail, who
from tests.parts import free_port


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
