"""The access table through a real gateway: every caller, in states that the agent's side feeds as tables."""

from __future__ import annotations

import pytest

from tests.fakes.gateway_rig import NOW, WHO, Rig, reserved, run, step, target

D, A = target("default-model"), target("reserved-model", "fast")
START, END = NOW - 60_000, NOW + 600_000
WINDOW = [reserved(START, END, A, fallback=D), step(END, D)]
SERVED, SHUT = (200, None), (403, "gpu_reserved")
LOADING = {"identity": A["identity"], "model": A["model"], "preset": "fast", "ready_at_ms": NOW + 7_500}
SWITCHING = {"identity": A["identity"], "retry_drain": False, "ready_at_ms": NOW + 30_000}
FAILURE = {"reason": "out of GPU memory; lower -c", "category": "out_of_memory", "retry_at_ms": NOW + 20_000}

# state: (served by, the rest of the entry, inside, outside, Retry-After)
STATES = {
    "free, ready": (D, {}, SERVED, SERVED, None),
    "reserved, ready": (A, {"steps": WINDOW}, SERVED, SHUT, None),
    "reserved, loading": (
        None,
        {"steps": WINDOW, "phase": "loading", "loading": LOADING},
        (503, "model_loading"),
        SHUT,
        8,
    ),
    "reserved, switching": (
        D,
        {"steps": WINDOW, "phase": "draining", "open": False, "switching": SWITCHING},
        (503, "model_switching"),
        SHUT,
        30,
    ),
    "reserved, draining the fallback": (
        D,
        {
            "steps": WINDOW,
            "phase": "draining",
            "open": False,
            "fallback": True,
            "failure": FAILURE,
            "switching": {**SWITCHING, "retry_drain": True, "ready_at_ms": NOW - 1},
        },
        (503, "model_switching"),
        SHUT,
        5,
    ),
    "reserved, fallback": (D, {"steps": WINDOW, "fallback": True, "failure": FAILURE}, SERVED, SHUT, None),
    "reserved, failed": (
        None,
        {"steps": WINDOW, "phase": "retry_wait", "failure": FAILURE},
        (503, "model_failed"),
        SHUT,
        20,
    ),
    "exclusive": (None, {"steps": [reserved(START, END, None)]}, (503, "gpu_exclusive"), SHUT, None),
    "free, switching": (
        D,
        {"steps": [step(START, A)], "phase": "draining", "open": False, "switching": SWITCHING},
        (503, "model_switching"),
        (503, "model_switching"),
        30,
    ),
    "free, loading": (
        None,
        {"steps": [step(START, A)], "phase": "loading", "loading": LOADING},
        (503, "model_loading"),
        (503, "model_loading"),
        8,
    ),
    "free, nothing": (None, {"steps": [step(START, None)]}, (503, "no_model"), (503, "no_model"), None),
    "free, failed": (
        None,
        {"steps": [step(START, A)], "phase": "retry_wait", "failure": FAILURE},
        (503, "model_failed"),
        (503, "model_failed"),
        20,
    ),
    "reserved, GPU held": (
        None,
        {"steps": WINDOW, "phase": "blocked", "blocked": "eve's python"},
        (503, "gpu_busy"),
        SHUT,
        None,
    ),
    "free, GPU held": (
        None,
        {"steps": [step(START, A)], "phase": "blocked", "blocked": "eve's python"},
        (503, "gpu_busy"),
        (503, "gpu_busy"),
        None,
    ),
}


def test_table() -> None:
    async def test(rig: Rig) -> None:
        for state, (serving, more, inside, outside, after) in STATES.items():
            await rig.publish(rig.entry(serving=serving, **more))
            for kind, who in WHO.items():
                answer = await rig.call(who)
                wanted = inside if kind in ("holder", "participant") else outside
                assert (answer.status, answer.code) == wanted, (state, kind)
                assert answer.headers["x-request-id"].startswith("req_")
                if wanted == SERVED:
                    assert answer.headers["x-slotserve-channel"] == "main"
                    assert serving
                    assert answer.headers["x-slotserve-model"] == serving["model"]
                    assert answer.json()["model"] == serving["model"]
                    assert (answer.headers.get("x-slotserve-fallback") == "true") == bool(more.get("fallback"))
                else:
                    error = answer.json()["error"]
                    assert set(error) >= {"message", "type", "param", "code"}
                    assert error["request_id"] == answer.headers["x-request-id"]
                    expected = None if wanted == SHUT or after is None else str(after)
                    assert answer.headers.get("retry-after") == expected, (state, kind)
            assert (await rig.call(None)).code == "invalid_api_key", state
        await rig.drained()

    run(test)


@pytest.mark.parametrize(
    "header", ["Authorization: Bearer sk-ss-wrong", "Authorization: Basic eDp5", "x-api-key: ", ""]
)
def test_nobody(header: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        for path in ("/v1/models", "/v1/nonsense", "/channels/main/v1/models"):
            answer = await rig.get(path, None, f"{header}\r\n" if header else "")
            assert (answer.status, answer.code) == (401, "invalid_api_key")
            assert "www-authenticate" in answer.headers

    run(test)


def test_key_by_either_header_and_until_it_expires() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        assert (await rig.get("/v1/models", None, "x-api-key: sk-ss-tomas\r\n")).status == 200
        assert (await rig.get("/v1/models", None, "authorization: bearer sk-ss-tomas\r\n")).status == 200
        keys = rig.keys()
        for row in keys.values():
            row["expires_at_ms"] = NOW + 1000
        rig.gateways.set_keys(keys)
        await rig.until(lambda: all(k.expires_at for k in rig.gateway.keys._by_hash.values()))
        rig.now = NOW + 999
        assert (await rig.get("/v1/models")).status == 200
        rig.now = NOW + 1000
        assert (await rig.get("/v1/models")).status == 401

    run(test)


def test_access_changes_at_the_reservations_instant_without_anybody_saying_so() -> None:
    async def test(rig: Rig) -> None:
        steps = [step(NOW - 1000, A, why="preload"), reserved(NOW + 100, NOW + 200, A), step(NOW + 200, A)]
        await rig.publish(rig.entry(serving=A, steps=steps))
        for rig.now, status in ((NOW + 99, 200), (NOW + 100, 403), (NOW + 199, 403), (NOW + 200, 200)):
            assert (await rig.call("tomas")).status == status
            assert (await rig.call("maya")).status == 200

    run(test)


def test_an_agent_that_is_away_cannot_make_the_wrong_model_serve_a_reservation() -> None:
    async def test(rig: Rig) -> None:
        await rig.publish(rig.entry(serving=D, steps=[step(START, D), reserved(NOW + 100, END, A, fallback=D)]))
        rig.now = NOW + 100
        answer = await rig.call("maya")
        assert (answer.status, answer.code) == (503, "model_switching")
        assert (await rig.call("tomas")).code == "gpu_reserved"

    run(test)


def test_ends_in() -> None:
    async def test(rig: Rig) -> None:
        await rig.publish(rig.entry(serving=A, steps=WINDOW))
        assert (await rig.call("maya")).headers["x-slotserve-ends-in"] == "600"
        await rig.publish(rig.entry(serving=D, steps=[step(START, D), step(NOW + 90_500, A, why="preload")]))
        assert (await rig.call("tomas")).headers["x-slotserve-ends-in"] == "90"
        await rig.serve_default()
        assert "x-slotserve-ends-in" not in (await rig.call("tomas")).headers

    run(test)


def test_holder_is_named_only_for_everyone() -> None:
    async def test(rig: Rig) -> None:
        await rig.publish(rig.entry(serving=A, steps=WINDOW))
        assert "Maya" not in (await rig.call("tomas")).json()["error"]["message"]
        rig.gateways.set_settings({"show_holders": "everyone"})
        await rig.until(lambda: rig.gateway.table.order[0].show_holders == "everyone")
        assert "Maya" in (await rig.call("tomas")).json()["error"]["message"]

    run(test)


def test_errors_of_messages_are_as_its_clients_expect() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        error = (await rig.call(model="nonsense", path="/v1/messages")).json()
        assert error["type"] == "error"
        assert error["error"]["code"] == "model_not_found"

    run(test)


def test_channel_by_its_full_name() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.gateway.node = "gpu-a01"
        assert (await rig.get("/v1/models", headers="X-SlotServe-Channel: gpu-a01/main\r\n")).status == 200
        assert (await rig.get("/v1/models", headers="X-SlotServe-Channel: gpu-a02/main\r\n")).status == 400

    run(test)


def test_keys_not_known_yet() -> None:
    async def test(rig: Rig) -> None:
        rig.gateway.keys.known = False
        rig.gateway.keys._by_hash = {}
        assert (await rig.get("/v1/models", None)).status == 401
        answer = await rig.get("/v1/models")
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "not_ready", "5")

    run(test)
