"""What an engine would be started with for a preset: which of its arguments SlotServe owns, which need an administrator,
which the engine does not know."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from agent.engines import get
from agent.engines.base import ArgumentError, Place, Prepared, tokenise
from controller.api.preset_bodies import PresetCheck
from controller.api.route import Call
from controller.errors import Forbidden, Invalid
from controller.said import Said, say
from controller.store import channels, models

PROGRAMS = {"llama.cpp": ("llama-server",), "vllm": ("vllm",), "sglang": ("sglang",)}
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Sample:
    """Where the engine would run, for `check`."""

    path: str
    gpu_uuids: tuple[str, ...] = ()
    channel: str = "channel"
    projector: str = ""


def check(call: Call) -> dict[str, Any]:
    body = call.body(PresetCheck)
    tokens = tokens_of(body.args)
    checked_env(body.env)
    with call.ctx.store.read() as session:
        sample = _sample(session, body)
    prepared = prepare(body.engine, tokens, body.env, body.model, sample)
    return {
        "command": list(prepared.command),
        "env": dict(prepared.env),
        "dropped": dropped(prepared),
        "unknown": list(prepared.unknown),
        "needs_permission": list(prepared.needs_permission),
        "kept": list(prepared.kept),
        "suggestions": _suggestions(body.engine, prepared),
    }


def _suggestions(engine: str, prepared: Prepared) -> dict[str, str]:
    """What unknown options were probably meant to be."""
    chosen = get(engine)
    return {flag: meant for flag in prepared.unknown if (meant := chosen.suggest(flag))}


def prepare(engine: str, tokens: list[str], env: dict[str, str], model: str, sample: Sample) -> Prepared:
    chosen = get(engine)
    where = Place(
        model_path=sample.path,
        served_names=(model, "start-0"),
        engine_key="(a new key at every start)",
        socket=f"/run/slotserve/{sample.channel}.sock" if chosen.unix_socket else None,
        port=0 if chosen.unix_socket else 30_000,
        gpu_uuids=sample.gpu_uuids,
        home="/var/lib/slotserve-agent/home",
        tmpdir="/var/lib/slotserve-agent/tmp",
        cache="/var/lib/slotserve-agent/cache",
        projector=sample.projector,
    )
    program = PROGRAMS.get(engine) or tuple(getattr(chosen, "program", (engine,)))
    return chosen.prepare(program, tokens, env, where, {})


def _sample(session: Session, body: PresetCheck) -> Sample:
    entry = models.find(session, body.model)
    if entry is None:
        raise Invalid.field("model", say("there is no model %(model)s; see the list of models", model=repr(body.model)))
    if body.channel is None:
        first = entry.held[0][0]
        return Sample(first.path, projector=first.projector)
    found = channels.by_full_name(session, body.channel)
    if found is None:
        raise Invalid.field(
            "channel", say("there is no channel %(channel)s; name it node/channel", channel=repr(body.channel))
        )
    channel, node = found
    held = next((m for m, n in entry.held if n.id == node.id), entry.held[0][0])
    return Sample(held.path, tuple(channel.gpu_uuids), channel.name, held.projector)


def need_permission(call: Call, engine: str, tokens: list[str], env: dict[str, str]) -> None:
    """Raises Forbidden naming the arguments where they need an administrator."""
    needs = prepare(engine, tokens, env, "model", Sample("/models/model")).needs_permission
    if needs and not call.may("preset.permissioned"):
        field = "env" if all(name in env for name in needs) else "args"
        raise Forbidden(
            say(
                "%(field)s: %(list)s can run code or reach files; only an administrator may save that",
                field=field,
                list=", ".join(needs),
            ),
            details={field: say("needs an administrator"), "needs_permission": list(needs)},
        )


def tokens_of(args: Any) -> list[str]:
    try:
        tokens = tokenise(args)
    except ArgumentError:
        raise Invalid.field("args", say("a quote is not closed: close it, or put a backslash before it")) from None
    if len(tokens) > 1000:
        raise Invalid.field("args", say("are more than 1000 tokens"))
    return tokens


def checked_env(env: dict[str, str]) -> dict[str, str]:
    for name in env:
        if not VARIABLE.fullmatch(name):
            raise Invalid.field(
                "env", say("%(name)s is no name of a variable: letters, digits and _, no digit first", name=repr(name))
            )
    return dict(env)


def dropped(prepared: Prepared) -> list[dict[str, str]]:
    return [{"argument": d.argument, "why": Said(d.why, {})} for d in prepared.dropped]
