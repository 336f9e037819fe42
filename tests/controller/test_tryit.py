"""The console's own keys for trying a model: short-lived, used again, one answer a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.store import keys
from controller.store.tables import ApiKey, Audit
from controller.tryit import LIFE_MS, MOST, NAME, TryKeys
from tests.console_scene import Scene, scene


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return scene(tmp_path_factory.mktemp("scene"))


def rows(world: Scene, who: str) -> list[ApiKey]:
    with world.store.read() as db:
        return db.query(ApiKey).filter_by(user_id=world.ids[who], name=NAME).all()


def test_a_key_is_used_again_and_renewed_in_its_row(world: Scene) -> None:
    made: list[int] = []
    world.ctx.keys_changed = lambda: made.append(1)
    loans = TryKeys(world.ctx)
    first = loans.loan(world.ids["maya"])
    assert loans.loan(world.ids["maya"]) == first
    with world.store.read() as db:
        found = keys.authenticate(db, first.secret, world.now)
    assert found is not None
    assert first.expires_at == world.now + LIFE_MS
    assert rows(world, "maya")[0].id == first.key_id
    world.now += LIFE_MS - 60_000
    second = loans.loan(world.ids["maya"])
    assert (second.key_id, second.secret == first.secret) == (first.key_id, False)
    with world.store.read() as db:
        assert keys.authenticate(db, first.secret, world.now) is None
        assert keys.authenticate(db, second.secret, world.now + LIFE_MS) is None, "it runs out by itself"
    world.now += 2 * LIFE_MS
    third = TryKeys(world.ctx).loan(world.ids["maya"])  # after a restart
    assert third.key_id == first.key_id
    assert len(rows(world, "maya")) == 1
    assert len(made) == 3
    with world.store.read() as db:
        assert db.query(Audit).filter_by(action="key.create", subject=first.key_id).count() == 1


def test_a_revoked_key_is_not_revived(world: Scene) -> None:
    loans = TryKeys(world.ctx)
    first = loans.loan(world.ids["tomas"])
    with world.store.write() as db:
        keys.revoke(db, first.key_id, world.now)
    assert loans.loan(world.ids["tomas"], renew=True).key_id != first.key_id


def test_one_answer_a_person_and_few_in_all(world: Scene) -> None:
    loans = TryKeys(world.ctx)
    assert all(loans.enter(f"u{i}") for i in range(MOST))
    assert not loans.enter("u0")
    assert not loans.enter("another")
    loans.leave("u0")
    assert loans.enter("another")


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("gpu-a01/none", {"messages": [{"role": "user", "content": "x"}]}, 404, "there is no channel"),
        ("gpu-a01/main", {"messages": []}, 422, "messages"),
        ("gpu-a01/main", {"messages": [{"role": "god", "content": "x"}]}, 422, "role"),
        ("gpu-a01/main", {"messages": [{"role": "user", "content": "x"}]}, 409, "cannot reach this node's gateway"),
    ],
)
def test_what_is_refused_before_anything_is_asked(
    world: Scene, path: str, body: object, status: int, words: str, tmp_path: Path
) -> None:
    world.live.update("gpu-a01", gateway_urls=("http://127.0.0.1:9",))
    client = world.client("maya")
    page = client.get("/try").text
    token = page.split('name="csrf-token" content="')[1].split('"')[0]
    assert client.post(f"/api/console/try/{path}", json=body).status_code == 403, "without the page's token"
    answer = client.post(f"/api/console/try/{path}", json=body, headers={"X-CSRF-Token": token})
    assert answer.status_code == status
    assert words in answer.text
    assert world.client().post(f"/api/console/try/{path}", json=body).status_code == 401
