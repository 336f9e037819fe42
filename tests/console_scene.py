"""A scene for pages and commands: one moment, nodes in every state, people, bookings; a real store, made-up live words.

14:28:04 on Thursday 19 November 2026 in Asia/Shanghai. `scene(folder)` gives the application with everything in it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from controller import sessions
from controller.context import Context
from controller.fleet.live import Live, LiveChannel, LiveFailure, LiveGpu
from controller.settings import Settings
from controller.store import keys, users
from controller.store.session import Store
from controller.store.tables import Channel, Node, NodeModel, Preset, Reservation
from controller.web import create_app
from tests.parts import migrated_sqlite

GB = 10**9
PASSWORD = "correct horse"
HOSTILE = "<img src=x onerror=alert(1)>-Q8_0"


def at(text: str) -> int:
    """`14:30` or `20 09:00` of the scene's month, in Shanghai, as ms."""
    day, _, clock = text.rpartition(" ")
    moment = datetime.fromisoformat(f"2026-11-{day or '19'}T{clock if clock.count(':') == 2 else clock + ':00'}+08:00")
    return round(moment.timestamp() * 1000)


NOW = at("14:28:04")


@dataclass
class Scene:
    app: Any
    ctx: Context
    store: Store
    live: Live
    ids: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    now: int = NOW

    def client(self, name: str | None = None, language: str = "en", zone: str = "Asia/Shanghai") -> Any:
        """A browser of a person who has signed in."""
        client = self.app.test_client()
        client.set_cookie("zone", zone)
        client.set_cookie("language", language)
        if name:
            with client.session_transaction() as session, self.store.write() as db:
                sessions.begin(session, db, users.get(db, self.ids[name]), self.now)
        return client


def scene(folder: Path, **settings: Any) -> Scene:
    """The application with the whole scene."""
    shutil.copy(migrated_sqlite(), folder / "scene.db")
    store = Store(f"sqlite:///{folder / 'scene.db'}")
    live = Live()
    made: list[Scene] = []
    ctx = Context(Settings(state_dir=folder, **settings), store, live, clock=lambda: made[0].now)
    made.append(Scene(create_app(ctx), ctx, store, live))
    _people(made[0])
    _nodes(made[0])
    return made[0]


@cache
def password_hash() -> str | None:
    """Of PASSWORD, made once: a hash is slow on purpose."""
    return users.hash_password(PASSWORD)


def _people(s: Scene) -> None:
    with s.store.write() as db:
        for name, role in (
            ("lin", "admin"),
            ("maya", "user"),
            ("tomas", "user"),
            ("阿哲", "user"),
            ("noor", "approver"),
            ("sofia", "user"),
        ):
            row = users.create(db, name, None, role, NOW)
            s.ids[name] = row.id
            s.keys[name] = keys.create(db, row.id, "test", NOW)[1]
        users.by_name(db, "lin").password_hash = password_hash()


def _nodes(s: Scene) -> None:
    _node(
        s,
        "gpu-a01",
        "H200",
        141,
        ["main", "c6", "c7"],
        ["DeepSeek-R1-Distill-Llama-70B-BF16", "Qwen3-32B-Q4_K_M", "Qwen2.5-VL-72B-Instruct-AWQ"],
    )
    _node(s, "gpu-a02", "H100", 80, ["tp4-a", "tp4-b"], ["Qwen3-32B-FP8", "gpt-oss-120b-MXFP4"])
    _node(s, "gpu-b01", "A100", 80, ["g0", "g1", "g2"], ["Qwen3-32B-Q4_K_M", "GLM-4.5-Air-Q4_K_M", HOSTILE])
    _node(s, "lab-3090", "RTX 3090", 24, ["g0", "g1"], ["Mistral-Small-3.2-24B-Q4_K_M"])
    _node(s, "edge-t4", "T4", 16, ["g0"], ["Qwen3-4B-Instruct-Q8_0"])
    with s.store.write() as db:
        db.add(
            Preset(
                model="Qwen3-32B-Q4_K_M",
                name="long-context",
                engine="llama.cpp",
                args=["-c", "65536"],
                env={},
                owner_id=s.ids["lin"],
                created_at=NOW,
                updated_at=NOW,
            )
        )
    defaults = {
        "gpu-a01/main": "DeepSeek-R1-Distill-Llama-70B-BF16",
        "gpu-a01/c6": "Qwen3-32B-Q4_K_M",
        "gpu-a01/c7": "Qwen3-32B-Q4_K_M",
        "gpu-a02/tp4-a": "Qwen3-32B-FP8",
        "gpu-b01/g0": "Qwen3-32B-Q4_K_M",
        "gpu-b01/g1": "Qwen3-32B-Q4_K_M",
        "gpu-b01/g2": HOSTILE,
        "lab-3090/g1": "Mistral-Small-3.2-24B-Q4_K_M",
        "edge-t4/g0": "Qwen3-4B-Instruct-Q8_0",
    }
    with s.store.write() as db:
        for name, model in defaults.items():
            db.get(Channel, s.ids[name]).default_model = model
        overridden = db.get(Channel, s.ids["gpu-b01/g0"])
        overridden.override_set_at, overridden.override_until, overridden.override_by = (
            NOW - 1000,
            at("18:00"),
            s.ids["lin"],
        )
        overridden.override_model = "Qwen3-32B-Q4_K_M"
    _book(s, "gpu-a01/main", "maya", "20:00", "22:00", "Qwen3-32B-Q4_K_M")
    _book(s, "gpu-a01/c6", "lin", "12:00", "16:00", "Qwen3-32B-Q4_K_M", preset="long-context")
    _book(s, "gpu-a01/c6", "maya", "17:00", "18:00", "Qwen3-32B-Q4_K_M")
    _book(s, "gpu-a01/c7", "maya", "14:30", "16:00", "Qwen2.5-VL-72B-Instruct-AWQ", committed=True)
    _book(s, "gpu-a02/tp4-a", "sofia", "13:00", "17:30", "gpt-oss-120b-MXFP4")
    _book(s, "gpu-a02/tp4-b", "阿哲", "12:00", "20:00", None)
    _book(s, "gpu-a02/tp4-b", "lin", "20 09:00", "20 13:00", None, status="pending")
    _book(s, "gpu-b01/g1", "tomas", "14:00", "16:00", "GLM-4.5-Air-Q4_K_M")
    _book(s, "edge-t4/g0", "noor", "15:00", "16:00", "Qwen3-4B-Instruct-Q8_0")
    _book(s, "gpu-b01/g2", "tomas", "09:00", "10:00", HOSTILE, status="finished")
    ready = {"phase": "ready", "phase_since": NOW - 60_000}
    _say(
        s,
        "gpu-a01",
        main=LiveChannel(running="x", running_model="DeepSeek-R1-Distill-Llama-70B-BF16", in_flight=12, **ready),
        c6=LiveChannel(
            running="y", running_model="Qwen3-32B-Q4_K_M", running_preset="long-context", in_flight=1, **ready
        ),
        c7=LiveChannel(
            "loading",
            running="z",
            running_model="Qwen2.5-VL-72B-Instruct-AWQ",
            load_started_at=NOW - 84_000,
            load_estimated_seconds=140.0,
        ),
    )
    failure = LiveFailure(
        "i",
        "gpt-oss-120b-MXFP4",
        None,
        "out_of_memory",
        "Out of GPU memory. Lower -ngl or -c (now 65536).",
        9,
        at("13:27"),
        at("14:22:38"),
        at("14:32:38"),
        "e1",
        "ggml_cuda_host_malloc: failed to allocate 61440.00 MiB",
    )
    _say(
        s,
        "gpu-a02",
        **{
            "tp4-a": LiveChannel(
                running="f", running_model="Qwen3-32B-FP8", fallback=True, failure=failure, in_flight=2, **ready
            ),
            "tp4-b": LiveChannel("off"),
        },
    )
    _say(
        s,
        "gpu-b01",
        g0=LiveChannel(running="q", running_model="Qwen3-32B-Q4_K_M", in_flight=2, **ready),
        g1=LiveChannel(
            "draining",
            running="q",
            running_model="Qwen3-32B-Q4_K_M",
            in_flight=2,
            phase_since=NOW - 18_000,
            drain_deadline=NOW + 12_000,
            switching_to="g",
        ),
        g2=LiveChannel(running="h", running_model=HOSTILE, in_flight=0, **ready),
    )
    _say(
        s,
        "lab-3090",
        skew=4.2,
        g0=LiveChannel("off"),
        g1=LiveChannel(
            "blocked",
            detail="the GPU is held by somebody else's process: python3 (pid 48213, user wei, 18.4 GB on GPU 1); "
            "the model starts as soon as it is gone",
        ),
    )
    _say(s, "edge-t4", online=False, g0=LiveChannel(running="e", running_model="Qwen3-4B-Instruct-Q8_0", **ready))


def _node(s: Scene, name: str, gpu: str, memory: int, channels: list[str], models: list[str]) -> None:
    gpus = tuple(
        LiveGpu(i, f"GPU-{name}-{i}", gpu, memory * GB, round(memory * GB * (0.2 + 0.1 * i)), 20 * i)
        for i in range(len(channels))
    )
    with s.store.write() as db:
        node = Node(name=name, created_at=NOW, last_seen_at=at("13:58"), gateway_urls=[f"http://{name}:8710"])
        db.add(node)
        db.flush()
        for i, channel in enumerate(channels):
            row = Channel(
                node_id=node.id,
                name=channel,
                created_at=NOW,
                gpu_uuids=[gpus[i].uuid],
                gpu_memory_bytes=memory * GB,
                engines=["llama.cpp"],
            )
            db.add(row)
            db.flush()
            s.ids[f"{name}/{channel}"] = row.id
        db.add_all(
            NodeModel(
                node_id=node.id,
                name=m,
                path=f"/m/{m}.gguf",
                size_bytes=20 * GB,
                format="gguf",
                channels=channels,
                seen_at=NOW,
            )
            for m in models
        )
    s.live.update(
        name, gpus=gpus, online=True, version="0.1.0", since=NOW - 3_600_000, gateway_urls=(f"http://{name}:8710",)
    )


def _say(s: Scene, node: str, online: bool = True, skew: float | None = None, **channels: LiveChannel) -> None:
    s.live.update(
        node, channels=channels, online=online, clock_skew_seconds=skew, **({} if online else {"since": at("13:58")})
    )


def _book(
    s: Scene,
    channel: str,
    holder: str,
    start: str,
    end: str,
    model: str | None,
    *,
    preset: str | None = None,
    status: str = "approved",
    committed: bool = False,
) -> str:
    with s.store.write() as db:
        row = Reservation(
            channel_id=s.ids[channel],
            kind="model" if model else "exclusive",
            model=model,
            preset=preset,
            starts_at=at(start),
            ends_at=at(end),
            status=status,
            holder_id=s.ids[holder],
            booked_by=s.ids[holder],
            note="a note for few",
            created_at=NOW,
            approved_at=at(start) - 1 if status == "approved" else None,
            committed=committed,
        )
        db.add(row)
        db.flush()
        return row.id
