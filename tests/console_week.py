"""The scene with a week behind it: requests that wait, past bookings, loads, presets, keys, links, notices; and what the
machines did (console_past.py).

For pages that show the past, and for pictures of them: nothing here is empty. The same figures at every run.
"""

from __future__ import annotations

import random
from dataclasses import replace

from controller.fleet.live import LiveChannel
from controller.notify import together
from controller.notify.tell import Event, tell
from controller.store import audit, keys, links, users
from controller.store.tables import (
    Channel,
    Load,
    NodeModel,
    NotificationTarget,
    Outbox,
    Preset,
    Reservation,
)
from controller.times import text_of
from tests.console_past import HOUR, lived
from tests.console_scene import GB, HOSTILE, NOW, Scene, _node, at

LONG = "Llama-4-Maverick-17B-128E-Instruct-Community-Finetune-2026-11-AWQ"


def lived_in(s: Scene) -> dict[str, str]:
    """Ids for addresses: `booking` (lin's, running), `exclusive`, `failing` (sofia's), `wall` (the secret)."""
    _rack(s)
    ids = _bookings(s)
    _catalogue(s)
    lived(s)
    _people(s)
    _told(s)
    return ids


def _rack(s: Scene) -> None:
    """A node with a long name, a channel with four cards and a model whose name fits nowhere; engines of both kinds."""
    name, channel = "inference-rack-07", "quad-nvlink-4-7"
    _node(s, name, "RTX PRO 6000", 96, [channel], [LONG])
    first = s.live.node(name).gpus[0]
    gpus = tuple(replace(first, index=i, uuid=f"GPU-{name}-{i}", utilisation_percent=91 - 9 * i) for i in range(4, 8))
    ready = LiveChannel("ready", running="r", running_model=LONG, in_flight=118, phase_since=NOW - HOUR)
    s.live.update(name, gpus=gpus, channels={channel: ready})
    with s.store.write() as db:
        row = db.get(Channel, s.ids[f"{name}/{channel}"])
        row.gpu_uuids, row.gpu_memory_bytes, row.default_model = [g.uuid for g in gpus], 4 * 96 * GB, LONG
        for one in db.query(Channel):
            one.engines = ["llama.cpp"] if "c6" in one.name else ["vllm", "llama.cpp"]


def _bookings(s: Scene) -> dict[str, str]:
    """On a card of lin's: past ones, an exclusive and a maintenance one; requests that wait for a decision."""
    rows = (
        ("gpu-b01/g2", "lin", None, "18:00", "20:00", {}),
        ("gpu-b01/g2", "lin", None, "21:00", "23:00", {"maintenance": True, "note": "Driver update"}),
        ("gpu-b01/g2", "lin", "Qwen3-32B-Q4_K_M", "18 09:00", "18 11:00", {"status": "ended_early"}),
        (
            "gpu-b01/g2",
            "lin",
            "Qwen3-32B-Q4_K_M",
            "18 14:00",
            "18 16:00",
            {"status": "rejected", "reason": "a course that morning"},
        ),
        ("gpu-a01/main", "lin", "Qwen3-32B-Q4_K_M", "17 20:00", "18 02:00", {"status": "finished"}),
        (
            "gpu-b01/g0",
            "maya",
            "GLM-4.5-Air-Q4_K_M",
            "19:00",
            "20 07:00",
            {"status": "pending", "note": "Long-document evaluation, batch 3 of 5"},
        ),
        (
            "gpu-a01/main",
            "阿哲",
            None,
            "20 10:00",
            "20 20:00",
            {"status": "pending", "note": "LoRA 微调，需要整张卡", "participants": ["maya", "tomas"]},
        ),
        ("gpu-a01/c7", "sofia", "Qwen2.5-VL-72B-Instruct-AWQ", "20 09:30", "20 12:00", {"participants": ["lin"]}),
    )
    ids: dict[str, str] = {}
    with s.store.write() as db:
        db.get(Channel, s.ids["gpu-b01/g0"]).policy = {"approval": "always", "max_hours_week": 20}
        for channel, holder, model, start, end, more in rows:
            status = str(more.get("status", "approved"))
            people = [s.ids[name] for name in more.get("participants", [])]  # type: ignore[attr-defined]
            row = Reservation(
                channel_id=s.ids[channel],
                kind="model" if model else "exclusive",
                model=model,
                starts_at=at(start),
                ends_at=at(end),
                holder_id=s.ids[holder],
                booked_by=s.ids[holder],
                created_at=NOW - 2 * HOUR,
                approved_at=None if status in ("pending", "rejected") else min(NOW, at(start)) - HOUR,
                **{"status": status, **more, "participants": people},
            )
            db.add(row)
            db.flush()
            if not ids:
                ids["exclusive"] = row.id
            if status == "pending":
                together.requested(db, [row], NOW - 2 * HOUR)
        running = {
            r.holder_id: r for r in db.query(Reservation).filter_by(status="approved") if r.starts_at < NOW < r.ends_at
        }
        ids["booking"], ids["failing"] = running[s.ids["lin"]].id, running[s.ids["sofia"]].id
        mine = running[s.ids["lin"]]
        mine.participants, mine.note = [s.ids["maya"], s.ids["阿哲"]], "Long-document evaluation"
        window = {"starts_at": at("12:00"), "ends_at": at("15:00"), "channel_id": mine.channel_id}
        longer = {**window, "ends_at": at("16:00")}
        audit.add(db, mine.holder_id, "reservation.create", mine.id, at("18 17:02"), after=window)
        audit.add(db, mine.holder_id, "reservation.edit", mine.id, at("11:40"), before=window, after=longer)
        ids["wall"] = links.create(db, s.ids["lin"], "wall", NOW - 9 * 24 * HOUR)[1]
    return ids


def _catalogue(s: Scene) -> None:
    """What the files say of the models, how long they took to load, and presets of several people."""
    known = {
        "Qwen3-32B-Q4_K_M": ("qwen3", 131_072, "Q4_K_M", 32_800_000_000, 19.8),
        "Qwen3-32B-FP8": ("qwen3", 131_072, "FP8", 32_800_000_000, 34.1),
        "DeepSeek-R1-Distill-Llama-70B-BF16": ("llama", 131_072, "BF16", 70_600_000_000, 141.2),
        "Qwen2.5-VL-72B-Instruct-AWQ": ("qwen2_5_vl", 32_768, "AWQ", 72_700_000_000, 42.6),
        "gpt-oss-120b-MXFP4": ("gpt-oss", 131_072, "MXFP4", 116_800_000_000, 63.4),
        "GLM-4.5-Air-Q4_K_M": ("glm4moe", 131_072, "Q4_K_M", 106_000_000_000, 72.9),
        "Mistral-Small-3.2-24B-Q4_K_M": ("llama", 131_072, "Q4_K_M", 23_600_000_000, 14.3),
        "Qwen3-4B-Instruct-Q8_0": ("qwen3", 262_144, "Q8_0", 4_020_000_000, 4.3),
        LONG: ("llama4", 1_048_576, "AWQ", 402_000_000_000, 229.7),
        HOSTILE: ("llama", 8_192, "Q8_0", 8_030_000_000, 8.5),
    }
    dice = random.Random(3)
    with s.store.write() as db:
        for row in db.query(NodeModel):
            architecture, length, quantisation, parameters, size = known[row.name]
            row.architecture, row.context_length, row.quantisation = architecture, length, quantisation
            row.parameters, row.size_bytes = parameters, round(size * GB)
            if not row.name.endswith(("_K_M", "_0", "MXFP4")):
                row.format, row.path = "safetensors", f"/m/{row.name}"
            for i in range(dice.randrange(2, 6)):
                seconds = 12 + size * 1.4 + dice.uniform(-4, 9)
                when = NOW - (i * 19 + dice.randrange(1, 9)) * HOUR
                load = f"l{i}-{row.node_id}-{row.name}"[:64]
                db.add(
                    Load(
                        id=load,
                        node_id=row.node_id,
                        model=row.name,
                        identity="x",
                        ok=(i, row.name) != (1, "Qwen3-32B-FP8"),
                        seconds=seconds,
                        at=when,
                    )
                )
        for model, name, engine, args, owner in (
            ("Qwen3-32B-Q4_K_M", "tool-use", "llama.cpp", ["-c", "32768", "--jinja", "-fa", "on"], "maya"),
            ("gpt-oss-120b-MXFP4", "131k", "llama.cpp", ["-c", "131072", "-ngl", "99", "--port", "8080"], "sofia"),
            ("Qwen3-32B-FP8", "throughput", "vllm", ["--max-model-len", "32768", "--max-num-seqs", "64"], "lin"),
        ):
            db.add(
                Preset(
                    model=model,
                    name=name,
                    engine=engine,
                    args=args,
                    env={},
                    owner_id=s.ids[owner],
                    created_at=NOW - 40 * HOUR,
                    updated_at=NOW - 3 * HOUR,
                )
            )


def _people(s: Scene) -> None:
    with s.store.write() as db:
        lin = users.by_name(db, "lin")
        lin.email = "lin@lab.example"
        s.ids["noa"] = users.create(db, "noa", None, "user", NOW - 2 * HOUR).id  # new here: nothing of her own yet
        for name in ("maya", "noa", "noor"):
            users.by_name(db, name).password_hash = lin.password_hash
        keys.create(db, s.ids["lin"], "notebook on the train", NOW - 400 * HOUR)
        keys.create(db, s.ids["lin"], "evaluation job", NOW - 30 * HOUR)
        links.create(db, s.ids["lin"], "feed", NOW - 20 * HOUR)
        audit.add(db, s.ids["lin"], "node.invite", "edge-t4", at("12 09:00"))
        audit.add(
            db,
            s.ids["lin"],
            "channel.override",
            "gpu-b01/g0",
            at("14:27"),
            after={"model": "Qwen3-32B-Q4_K_M", "until": text_of(at("18:00"))},
            reason="the review on Friday needs it",
        )


def _told(s: Scene) -> None:
    """Notices, a place that messages go to, and one that did not get through."""
    with s.store.write() as db:
        target = NotificationTarget(
            name="Team room", way="chat", url="https://chat.example/hooks/abc", kinds=[], created_at=NOW - 90 * HOUR
        )
        db.add(target)
        db.flush()
        facts = {"message": "plain", "text": "No contact with edge-t4 since 13:58."}
        tell(db, Event("n1", "node_lost", "edge-t4", at("13:59"), facts), [s.ids["lin"]])
        for n, (state, error) in enumerate((("sent", ""), ("failed", "the service answered 410 Gone"))):
            db.add(
                Outbox(
                    event_id=f"o{n}",
                    kind="node_lost",
                    way="chat",
                    address=target.id,
                    payload={"facts": facts},
                    state=state,
                    created_at=at("13:59"),
                    due_at=at("13:59"),
                    attempts=1 + 7 * n,
                    sent_at=at("13:59") if state == "sent" else None,
                    error=error,
                )
            )
