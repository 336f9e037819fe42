"""Presets through REST: what is dropped, what needs permission, edits beside running bookings."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from controller.store.tables import Load, Node, Reservation
from tests.controller.api.conftest import HOUR, World
from tests.parts import BOTH

DATABASES = BOTH


def preset(w: World, who: str = "maya", **more: Any) -> Any:
    body = {"model": "small", "name": "p1", "engine": "llama.cpp", "args": "-c 4096 --port 9", **more}
    return w.good("POST", "/presets", body, who)


def test_create_says_what_is_dropped(w: World) -> None:
    made = preset(w, env={"SECRET": "s3cret", "LLAMA_API_KEY": "x"}, load_timeout_seconds=30)
    assert made["args"] == ["-c", "4096", "--port", "9"]
    dropped = {d["argument"].split()[0]: d["why"] for d in made["dropped"]}
    assert set(dropped) == {"--port", "LLAMA_API_KEY"}
    assert all(dropped.values())
    assert made["env"]["SECRET"] == "s3cret"
    other = w.get(f"/presets/{made['id']}", "tom")
    assert "s3cret" not in str(other)
    assert set(other["env"]) == {"SECRET", "LLAMA_API_KEY"}
    assert w.get(f"/presets/{made['id']}")["env"]["SECRET"] == "s3cret"
    assert [p["name"] for p in w.get("/presets?model=small", "tom")["items"]] == ["p1"]
    assert "s3cret" not in str(w.get("/audit"))
    w.bad(409, "POST", "/presets", {"model": "small", "name": "p1", "engine": "vllm"}, "maya")


def test_what_it_took_of_gpu_memory_is_told(w: World) -> None:
    made = preset(w)
    assert made["gpu_memory_bytes"] is None
    with w.ctx.store.write() as session:
        node = session.scalars(select(Node.id).where(Node.name == "n1")).one()
        for at, took, ok in ((1, 7, True), (2, 9, True), (3, None, True), (4, 11, False)):
            what = {"model": "small", "preset": "p1", "identity": "i", "seconds": 1.0}
            session.add(Load(id=str(at), node_id=node, at=at, ok=ok, gpu_memory_bytes=took, **what))
    assert w.get(f"/presets/{made['id']}")["gpu_memory_bytes"] == 9, "of the last load that went well and was measured"
    assert w.get("/presets?model=small")["items"][0]["gpu_memory_bytes"] == 9


def test_bad_presets(w: World) -> None:
    good = {"model": "small", "name": "p1", "engine": "llama.cpp"}
    for change, field in (
        ({"model": "nope"}, "model"),
        ({"name": ""}, "name"),
        ({"name": "a:b"}, "name"),
        ({"name": " a"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"engine": "ollama"}, "engine"),
        ({"args": "it's"}, "args"),
        ({"args": ["ok", 3]}, "args.1"),
        ({"args": {"c": 1}}, "args"),
        ({"args": ["a\x00"]}, "args.0"),
        ({"env": {"1A": "x"}}, "env"),
        ({"env": {"A B": "x"}}, "env"),
        ({"env": {"A": 1}}, "env.A"),
        ({"env": ["A"]}, "env"),
        ({"load_timeout_seconds": 0}, "load_timeout_seconds"),
        ({"load_timeout_seconds": "9"}, "load_timeout_seconds"),
        ({"owner": "me"}, "owner"),
    ):
        said = w.bad(422, "POST", "/presets", {**good, **change}, "maya")
        assert field in said["error"]["details"], (change, said)
    assert w.get("/presets")["items"] == []


def test_permissioned_flags_need_an_administrator(w: World) -> None:
    body = {"model": "small", "name": "p", "engine": "vllm", "args": ["--trust-remote-code"]}
    assert "--trust-remote-code" in w.bad(403, "POST", "/presets", body, "maya")["error"]["message"]
    by_env = w.bad(403, "POST", "/presets", {**body, "args": [], "env": {"LD_PRELOAD": "/tmp/x.so"}}, "maya")["error"]
    assert by_env["message"].startswith("env: LD_PRELOAD can run code")
    assert by_env["details"]["env"] == "needs an administrator"
    made = w.good("POST", "/presets", body)
    w.bad(403, "PATCH", f"/presets/{made['id']}", {"args": []}, "maya")
    mine = preset(w, name="mine")
    w.bad(403, "PATCH", f"/presets/{mine['id']}", {"engine": "vllm", "args": "--trust-remote-code"}, "maya")
    w.bad(403, "DELETE", f"/presets/{mine['id']}", who="tom")


def test_edit_pins_what_runs(w: World) -> None:
    made = preset(w)
    booked = w.book(0, HOUR, preset="p1")
    later = w.book(2 * HOUR, 3 * HOUR, preset="p1")
    edited = w.good("PATCH", f"/presets/{made['id']}", {"args": ["-c", "1"], "version": 1}, "maya")
    assert (edited["version"], edited["args"], edited["env"]) == (2, ["-c", "1"], {})
    with w.store.read() as session:
        pinned = session.get(Reservation, booked["id"]).pinned  # type: ignore[union-attr]
        assert pinned is not None
        assert pinned["args"] == ["-c", "4096"]
        assert session.get(Reservation, later["id"]).pinned is None  # type: ignore[union-attr]
    assert w.get("/channels/n1/a")["booking"]["edited_since"] is True
    w.bad(409, "PATCH", f"/presets/{made['id']}", {"args": [], "version": 1}, "maya")
    w.bad(422, "PATCH", f"/presets/{made['id']}", {"env": None}, "maya")
    w.bad(409, "PATCH", f"/presets/{made['id']}", {"name": "p2"}, "maya")  # bookings name it


def test_delete(w: World) -> None:
    made = preset(w)
    w.good("PATCH", "/channels/n1/a", {"default_model": "small", "default_preset": "p1"})
    assert w.get("/channels/n1/a")["target"] == {"model": "small", "preset": "p1"}
    assert "n1/a" in w.bad(409, "DELETE", f"/presets/{made['id']}", who="maya")["error"]["message"]
    assert w.good("PATCH", "/channels/n1/a", {"default_model": "org/big model"})["default_preset"] is None
    assert w.call("DELETE", f"/presets/{made['id']}", who="maya").status_code == 204
    w.bad(404, "GET", f"/presets/{made['id']}")
    w.bad(422, "POST", "/reservations", w.wish(0, HOUR, preset="p1"), "maya")
    assert preset(w)["id"] != made["id"]


def test_check_shows_the_command_without_writing(w: World) -> None:
    revision = w.store.revision()
    w.get("/me", "tom")
    before = w.store.revision()
    for engine in ("llama.cpp", "vllm", "sglang", "simulated"):
        body = {
            "model": "org/big model",
            "engine": engine,
            "args": "--port 9 --nonsense",
            "env": {"A": "b"},
            "channel": "n1/b",
        }
        said = w.good("POST", "/presets/check", body, "tom")
        program = {"llama.cpp": ["llama-server"], "vllm": ["vllm", "serve"], "sglang": ["sglang", "serve"]}.get(
            engine, []
        )
        assert said["command"][: len(program)] == program
        assert said.keys() >= {"command", "env", "dropped", "unknown", "needs_permission"}
        assert "/models/org/big model.gguf" in said["command"]
        assert any("--port" in d["argument"] for d in said["dropped"]), engine
        assert any("nonsense" in u for u in said["unknown"]), engine
        assert (said["env"]["A"], said["env"]["CUDA_VISIBLE_DEVICES"]) == ("b", "GPU-1")
    assert w.store.revision() == before > revision
    for change, field in (
        ({"model": "x"}, "model"),
        ({"channel": "x"}, "channel"),
        ({"engine": "x"}, "engine"),
        ({"args": '"'}, "args"),
    ):
        said = w.bad(422, "POST", "/presets/check", {"model": "small", "engine": "vllm", **change}, "tom")
        assert field in said["error"]["details"]
