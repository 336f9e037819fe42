"""The console's own keys for trying a model: short-lived, used again, one answer a person."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


class Gateway(BaseHTTPRequestHandler):
    """Answers every question with the same two pieces."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("X-SlotServe-Model", "small")
        self.end_headers()
        for piece in (b"data: one\n\n", b"data: [DONE]\n\n"):
            self.wfile.write(piece)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def gateway() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_the_place_of_an_answer_is_free_when_that_is_over(world: Scene, gateway: str) -> None:
    world.live.update("gpu-a01", gateway_urls=(gateway,))
    client = world.client("maya")
    token = client.get("/try").text.split('name="csrf-token" content="')[1].split('"')[0]
    ask = {"json": {"messages": [{"role": "user", "content": "x"}]}, "headers": {"X-CSRF-Token": token}}
    for _ in range(2):
        with client.post("/api/console/try/gpu-a01/main", **ask) as answer:
            assert client.post("/api/console/try/gpu-a01/main", **ask).status_code == 429, "one at a time"
            assert answer.headers["X-SlotServe-Model"] == "small"
            assert answer.data == b"data: one\n\ndata: [DONE]\n\n"
    client.post("/api/console/try/gpu-a01/main", **ask).close()  # who goes away before a word gives it back as well
    client.post("/api/console/try/gpu-a01/main", **ask).close()
    world.live.update("gpu-a01", gateway_urls=("http://127.0.0.1:9",))
    for _ in range(2):
        assert client.post("/api/console/try/gpu-a01/main", **ask).status_code == 409
