"""The whole path with the real llama-server and the official OpenAI client."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.system.cluster import Cluster

pytestmark = [pytest.mark.system, pytest.mark.llama_server, pytest.mark.timeout(240)]
HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def long_stream(client: openai.OpenAI, tokens: int) -> Any:
    """A stream of the slow model. Plain completions: its random text means nothing to a chat parser."""
    return client.completions.create(model="slow", prompt="hello", max_tokens=tokens, stream=True)


def test_book_preload_serve_switch(llama: Cluster) -> None:
    """One booking's life: the default serves all, the preload is open to all, the holder alone is let in, then all."""
    maya, tomas = llama.openai("maya"), llama.openai("tomas")
    answer = tomas.chat.completions.create(model="tiny", messages=HELLO, max_tokens=5)
    assert answer.model == "tiny"
    assert answer.usage.completion_tokens == 5
    assert [m.id for m in tomas.models.list().data] == ["tiny", "auto"]

    booking = llama.book("tiny-2", 5, 14)
    assert booking["status"] == "approved"
    llama.until_ready("tiny-2", 10)
    channel = llama.channel()
    if channel["why"] == "preload":
        assert llama.chat("tomas", "tiny-2").status_code == 200, "a preloaded model is open to all before the start"
    llama.until(lambda: llama.channel()["why"] == "reserved", 10, "the booking has begun")

    streamed = maya.chat.completions.create(model="tiny-2", messages=HELLO, max_tokens=6, stream=True)
    pieces = [c.choices[0].delta.content for c in streamed if c.choices]
    assert len([p for p in pieces if p]) >= 5
    named = maya.chat.completions.create(model="auto", messages=HELLO, max_tokens=3)
    assert named.model == "tiny-2"
    with pytest.raises(openai.PermissionDeniedError) as refused:
        tomas.chat.completions.create(model="tiny-2", messages=HELLO)
    assert refused.value.code == "gpu_reserved"
    assert "maya" not in str(refused.value), "names are not told at the gateway unless everyone may see them"
    with pytest.raises(openai.AuthenticationError) as unknown:
        llama.openai("sk-ss-nobody").chat.completions.create(model="tiny-2", messages=HELLO)
    assert unknown.value.code == "invalid_api_key"

    ended = llama.post(f"/reservations/{booking['id']}/end", who="maya")
    assert ended["status"] == "ended_early"
    llama.until_ready("tiny", 15)
    assert llama.chat("tomas", "tiny").status_code == 200


def test_switch_under_load_loses_no_admitted_request(llama: Cluster) -> None:
    """Each request that was let in is finished, or told by an error event or a 503 at the drain's end."""
    llama.set_default("slow")
    llama.until_ready("slow")

    def one(number: int) -> str:
        client = llama.openai("maya")
        try:
            stream = long_stream(client, 40 + 1400 * (number % 2))
            finished = [c.choices[0].finish_reason for c in stream if c.choices]
        except openai.APIStatusError as err:
            return f"refused {err.status_code} {err.code}"
        except openai.APIError as err:
            return f"told {err.code}"
        return f"finished {finished[-1]}" if finished and finished[-1] else "cut without a word"

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        first = [pool.submit(one, n) for n in range(6)]
        llama.until(lambda: llama.channel()["in_flight"] >= 3, 10, "requests run")
        llama.set_default("tiny")
        llama.until(lambda: llama.channel()["phase"] != "ready", 20, "the switch has begun")
        late = [pool.submit(one, n) for n in range(6)]
        outcomes = [f.result() for f in first]
        refusals = [f.result() for f in late]
    assert all(
        o.startswith("finished") or o in ("told model_switching", "refused 503 model_switching") for o in outcomes
    ), outcomes
    assert any(o.startswith("finished") for o in outcomes), outcomes
    assert all(r.startswith(("refused 503 model_", "refused 404 model_not_found")) for r in refusals), refusals
    llama.until_ready("tiny")
    assert llama.channel()["in_flight"] == 0


def test_engine_killed_is_told_and_started_again(llama: Cluster) -> None:
    pid = llama.engine_pids()[0]
    os.kill(pid, signal.SIGKILL)
    channel = llama.until(lambda: (c := llama.channel())["failure"] and c, 10, "the failure is told")
    assert channel["failure"]["category"] in ("crashed", "killed_by_kernel")
    assert channel["failure"]["count"] == 1
    llama.until_ready("tiny", 15)
    assert llama.engine_pids() != [pid]
    assert llama.chat("noor", "tiny").status_code == 200


def test_agent_killed_while_tokens_stream(llama: Cluster) -> None:
    """The stream goes on, the restarted agent adopts the same engine process."""
    llama.set_default("slow")
    llama.until_ready("slow")
    pid = llama.engine_pids()[0]
    stream = long_stream(llama.openai("maya"), 150)
    pieces = [next(stream) for _ in range(5)]
    llama.agent.stop(signal.SIGKILL)
    pieces += [next(stream) for _ in range(5)]
    llama.agent.start()
    pieces += list(stream)
    assert pieces[-1].choices[0].finish_reason == "length"
    llama.until(lambda: llama.node()["online"], 15, "the agent is back")
    llama.until_ready("slow")
    assert llama.engine_pids() == [pid]
    os.kill(pid, 0)
    assert llama.chat("maya", "slow").status_code == 200


def test_controller_away_over_start_and_end(llama: Cluster) -> None:
    """The node keeps to the plan; on the controller's return everything agrees."""
    booking = llama.book("tiny-2", 6, 12)
    llama.until(lambda: llama.node()["plan"]["accepted"], 20, "the node has the plan")
    time_of_start = time.time() + 6
    llama.controller.stop()

    def served(model: str, who: str) -> bool:
        return llama.chat(who, "auto").json().get("model") == model

    llama.until(lambda: time.time() > time_of_start + 0.3 and served("tiny-2", "maya"), 15, "the holder is served")
    assert llama.chat("tomas", "tiny-2").json()["error"]["code"] == "gpu_reserved"
    llama.until(lambda: served("tiny", "tomas"), 15, "the default is back for everybody")
    llama.start_controller()
    llama.until(lambda: llama.node()["online"], 20, "the node is back")
    assert llama.get(f"/reservations/{booking['id']}")["status"] == "finished"
    channel = llama.until_ready("tiny")
    assert channel["target"]["model"] == "tiny"
    assert channel["why"] == "default"


@pytest.mark.parametrize("damage", ["missing", "cut short"])
def test_damaged_model_falls_back(llama: Cluster, llama_folder: Path, tiny_gguf: Path, damage: str) -> None:
    """The reason in words, the default serves the holder, retries at the announced times, recovery when mended."""
    c, name = llama, f"bad-{damage.split()[0]}"
    bad = llama_folder / f"{name}.gguf"
    shutil.copy(tiny_gguf, bad)
    c.until(lambda: len(c.get("/models")["items"]) == 4, 20, "the model is known")
    if damage == "missing":
        bad.unlink()
    else:
        bad.write_bytes(tiny_gguf.read_bytes()[:40_000])
    before = len(notices(c, "failed"))
    c.book(name, 0, 60)
    channel = c.until_ready("tiny", 20, fallback=True)
    assert channel["failure"]["category"] == ("missing_file" if damage == "missing" else "broken_file")
    assert channel["failure"]["reason"]
    answer = c.chat("maya", name)
    assert answer.status_code == 200
    assert answer.headers["X-SlotServe-Fallback"] == "true"
    assert answer.headers["X-SlotServe-Model"] == "tiny"
    assert answer.json()["model"] == "tiny"
    assert c.chat("tomas", "tiny").json()["error"]["code"] == "gpu_reserved"
    count = channel["failure"]["count"]
    again = c.until(lambda: (f := c.channel()["failure"]) and f["count"] > count and f, 15, "it is tried again")
    assert again["retry_at"] is None or again["retry_at"] > channel["failure"]["retry_at"]
    shutil.copy(tiny_gguf, llama_folder / "mended")
    (llama_folder / "mended").rename(bad)
    c.until_ready(name, 25)
    assert c.chat("maya", name).json()["model"] == name
    assert len(notices(c, "failed")) == before + 1, "one notice an episode, not one a retry"


def notices(c: Cluster, kind: str) -> list[Any]:
    return [n for n in c.get("/notifications?limit=1000", who="maya")["items"] if n["kind"] == kind]


def test_key_revoked_while_a_stream_runs(llama: Cluster) -> None:
    llama.set_default("slow")
    llama.until_ready("slow")
    key = llama.post("/keys", {"name": "short-lived"}, who="maya")
    client = llama.openai(key["secret"])
    llama.until(
        lambda: httpx.get(f"{llama.gateway_url}/v1/models", headers={"x-api-key": key["secret"]}).status_code == 200,
        5,
        "known",
    )
    stream = long_stream(client, 1500)
    next(stream)
    assert llama.request("DELETE", f"/keys/{key['id']}", who="maya").status_code in (200, 204)
    with pytest.raises(openai.APIError) as told:
        list(stream)
    assert told.value.code == "invalid_api_key"
    with pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(model="slow", messages=HELLO)
    llama.until(lambda: llama.channel()["in_flight"] == 0, 20, "nothing runs any more")


def test_client_gone_ends_the_engines_work(llama: Cluster) -> None:
    llama.set_default("slow")
    llama.until_ready("slow")
    stream = long_stream(llama.openai("maya"), 1500)
    next(stream)
    llama.until(lambda: llama.channel()["in_flight"] == 1, 20, "one request runs")
    stream.close()
    llama.until(lambda: llama.channel()["in_flight"] == 0, 20, "the request is gone")
    log = llama.until(
        lambda: "stop" in llama.get("/channels/n1/main/log?offset=0&limit=1000000")["text"] or None, 5, "the log"
    )
    assert log
