"""What the tests of signing in by an identity provider do and look at."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from sqlalchemy import select

from controller.store import users
from controller.store.tables import Audit, User
from tests.console_scene import Scene, scene
from tests.fakes.oidc_provider import CLIENT, SECRET


def lies(issuer: str, **what: Any) -> None:
    httpx.post(f"{issuer}/lie", json=what).raise_for_status()


def console(folder: Path, issuer: str, **settings: Any) -> Scene:
    world = scene(folder, oidc_issuer=issuer, oidc_client_id=CLIENT, oidc_client_secret=SECRET, **settings)
    world.now = round(time.time() * 1000)
    return world


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
