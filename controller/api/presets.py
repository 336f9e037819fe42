"""Presets: engine parameters with a name. What SlotServe owns is told in `dropped`; what could run code needs an
administrator. An edit acts at once everywhere but in running reservations, which keep what they were started with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from sqlalchemy.orm import Session

from agent.engines import get
from agent.engines.base import ArgumentError, Place, Prepared, tokenise
from controller import shapes
from controller.api.route import Body, Call, Page, Route, cursor, listed, place
from controller.booking import view
from controller.errors import Conflict, Forbidden, Invalid, NotFound
from controller.rights import Owned
from controller.said import say
from controller.scheduling.hints import incomplete_hint, load_timeout_hint
from controller.store import audit, channels, models, presets, users
from controller.store.estimates import load_seconds
from controller.store.launches import missing_of
from controller.store.session import Write
from controller.store.tables import Preset

EngineName = Literal["llama.cpp", "vllm", "sglang", "simulated"]
PROGRAMS = {"llama.cpp": ("llama-server",), "vllm": ("vllm",), "sglang": ("sglang",)}
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Args = list[Annotated[str, Field(max_length=20_000)]] | Annotated[str, Field(max_length=50_000)] | None
Env = dict[Annotated[str, Field(max_length=200)], Annotated[str, Field(max_length=20_000)]]
Timeout = Annotated[float | None, Field(gt=0, le=86_400, allow_inf_nan=False)]


def _preset_name(name: str) -> str:
    if name != name.strip() or not name.isprintable():
        raise ValueError(say("must be one line without spaces at its ends"))
    if ":" in name:
        raise ValueError(say("must not hold ':' (clients write model:preset)"))
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_preset_name)]


class NewPreset(Body):
    model: str = Field(min_length=1, max_length=512)
    name: Name
    engine: EngineName
    args: Args = Field(None, description="A list of tokens, or one string as a shell splits it")
    env: Env = Field(default_factory=dict)
    load_timeout_seconds: Timeout = None


class PresetChange(Body):
    name: Name | None = None
    engine: EngineName | None = None
    args: Args = None
    env: Env | None = None
    load_timeout_seconds: Timeout = None
    version: int | None = Field(None, ge=1, le=2**31 - 1, description="Refused where it was edited meanwhile")


class PresetCheck(Body):
    model: str = Field(min_length=1, max_length=512)
    engine: EngineName
    args: Args = None
    env: Env = Field(default_factory=dict)
    channel: str | None = Field(None, max_length=200)
    load_timeout_seconds: Timeout = None
    name: str | None = Field(None, max_length=200)


class PresetPage(Page):
    model: str | None = Field(None, max_length=512)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Where the engine would run, for `check`."""

    path: str
    gpu_uuids: tuple[str, ...] = ()
    channel: str = "channel"
    projector: str = ""


def list_presets(call: Call) -> dict[str, Any]:
    query = call.query(PresetPage)
    after = place(query.cursor, str, str, str)
    with call.ctx.store.read() as session:
        rows = presets.page(session, query.limit + 1, (after[0], after[1], after[2]) if after else None, query.model)
        names = users.names(session, {r.owner_id for r in rows})
    return listed(rows, query.limit, lambda r: _shape(call, r, names), lambda r: cursor(r.model, r.name, r.id))


def one_preset(call: Call) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        return _full(call, session, _found(session, call))


def create(call: Call) -> dict[str, Any]:
    body = call.body(NewPreset)
    tokens = _tokens(body.args)
    _checked_env(body.env)
    with call.ctx.store.write() as session:
        if models.find(session, body.model) is None:
            raise Invalid.field(
                "model", say("there is no model %(model)s; see the list of models", model=repr(body.model))
            )
        if presets.find(session, body.model, body.name) is not None:
            raise Conflict(
                say("name: %(model)s has a preset %(name)s already", model=body.model, name=repr(body.name)),
                details={"name": say("is taken")},
            )
        _permitted(call, body.engine, tokens, body.env)
        row = Preset(
            model=body.model,
            name=body.name,
            engine=body.engine,
            args=tokens,
            env=dict(body.env),
            load_timeout_seconds=body.load_timeout_seconds,
            owner_id=call.actor.id,
            created_at=call.now,
            updated_at=call.now,
        )
        session.add(row)
        session.flush()
        session.touch(all_channels=True)
        audit.add(session, call.actor.id, "preset.create", row.id, call.now, after=_record(row))
        return _saved(call, session, row)


def change(call: Call) -> dict[str, Any]:
    body = call.body(PresetChange)
    given = body.model_dump(exclude_unset=True)
    for field in ("name", "engine", "env"):
        if field in given and given[field] is None:
            raise Invalid.field(field, say("must not be null; leave it out to keep it"))
    with call.ctx.store.write() as session:
        row = _found(session, call)
        call.need("preset.change", Owned(row.owner_id))
        if body.version is not None and body.version != row.version:
            raise Conflict(
                say(
                    "version: the preset was changed meanwhile (it is at version %(version)s); look at it again",
                    version=row.version,
                ),
                details={"version": row.version},
            )
        before = _record(row)
        engine = body.engine or row.engine
        tokens = _tokens(body.args) if "args" in given else list(row.args)
        env = dict(row.env) if body.env is None else _checked_env(body.env)
        if (engine, tokens, env) != (row.engine, list(row.args), dict(row.env)):
            _permitted(call, engine, tokens, env)
        if body.name is not None and body.name != row.name:
            _rename(session, row, body.name, call.now)
        _pin_running(session, call, row)
        row.engine, row.args, row.env = engine, tokens, env
        if "load_timeout_seconds" in given:
            row.load_timeout_seconds = body.load_timeout_seconds
        row.version, row.updated_at = row.version + 1, call.now
        session.flush()
        session.touch(all_channels=True)
        audit.add(session, call.actor.id, "preset.change", row.id, call.now, before=before, after=_record(row))
        return _saved(call, session, row)


def delete(call: Call) -> None:
    with call.ctx.store.write() as session:
        row = _found(session, call)
        call.need("preset.change", Owned(row.owner_id))
        uses = presets.uses(session, row, call.now)
        if uses:
            raise Conflict(
                say("the preset is in use (%(list)s); change those first", list="; ".join(uses[:5])),
                details={"uses": uses},
            )
        row.deleted_at = call.now
        session.touch(all_channels=True)
        audit.add(session, call.actor.id, "preset.delete", row.id, call.now, before=_record(row))


def check(call: Call) -> dict[str, Any]:
    body = call.body(PresetCheck)
    tokens = _tokens(body.args)
    _checked_env(body.env)
    with call.ctx.store.read() as session:
        sample = _sample(session, body)
    prepared = _prepare(body.engine, tokens, body.env, body.model, sample)
    return {
        "command": list(prepared.command),
        "env": dict(prepared.env),
        "dropped": _dropped(prepared),
        "unknown": list(prepared.unknown),
        "needs_permission": list(prepared.needs_permission),
        "kept": list(prepared.kept),
        "suggestions": _suggestions(body.engine, prepared),
    }


def _suggestions(engine: str, prepared: Prepared) -> dict[str, str]:
    """What unknown options were probably meant to be."""
    chosen = get(engine)
    return {flag: meant for flag in prepared.unknown if (meant := chosen.suggest(flag))}


def _prepare(engine: str, tokens: list[str], env: dict[str, str], model: str, sample: _Sample) -> Prepared:
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


def _sample(session: Session, body: PresetCheck) -> _Sample:
    entry = models.find(session, body.model)
    if entry is None:
        raise Invalid.field("model", say("there is no model %(model)s; see the list of models", model=repr(body.model)))
    if body.channel is None:
        first = entry.held[0][0]
        return _Sample(first.path, projector=first.projector)
    found = channels.by_full_name(session, body.channel)
    if found is None:
        raise Invalid.field(
            "channel", say("there is no channel %(channel)s; name it node/channel", channel=repr(body.channel))
        )
    channel, node = found
    held = next((m for m, n in entry.held if n.id == node.id), entry.held[0][0])
    return _Sample(held.path, tuple(channel.gpu_uuids), channel.name, held.projector)


def _permitted(call: Call, engine: str, tokens: list[str], env: dict[str, str]) -> None:
    """Raises Forbidden naming the arguments where they need an administrator."""
    needs = _prepare(engine, tokens, env, "model", _Sample("/models/model")).needs_permission
    if needs and not call.may("preset.permissioned"):
        raise Forbidden(
            say(
                "args: %(list)s can run code or reach files; only an administrator may save that", list=", ".join(needs)
            ),
            details={"args": say("needs an administrator"), "needs_permission": list(needs)},
        )


def _pin_running(session: Write, call: Call, row: Preset) -> None:
    """Running reservations keep what they were started with, also where the planner has not pinned them yet."""
    for booking in presets.running_with(session, row, call.now):
        found = channels.by_id(session, booking.channel_id)
        if booking.pinned is None and found is not None:
            launch = view.launch_of(session, call.ctx.settings, view.Place(*found), row.model, row.name)
            if launch is not None:
                booking.pinned = dict(launch)
    session.flush()


def _rename(session: Write, row: Preset, name: str, now: int) -> None:
    if presets.find(session, row.model, name) is not None:
        raise Conflict(
            say("name: %(model)s has a preset %(name)s already", model=row.model, name=repr(name)),
            details={"name": say("is taken")},
        )
    uses = presets.uses(session, row, now)
    if uses:
        raise Conflict(
            say("name: the preset is in use (%(list)s); change those first", list="; ".join(uses[:5])),
            details={"uses": uses},
        )
    row.name = name


def _tokens(args: Any) -> list[str]:
    try:
        tokens = tokenise(args)
    except ArgumentError as err:
        raise Invalid.field("args", str(err).removeprefix("args: ")) from None
    if len(tokens) > 1000:
        raise Invalid.field("args", say("are more than 1000 tokens"))
    return tokens


def _checked_env(env: dict[str, str]) -> dict[str, str]:
    for name in env:
        if not VARIABLE.fullmatch(name):
            raise Invalid.field(
                "env", say("%(name)s is no name of a variable: letters, digits and _, no digit first", name=repr(name))
            )
    return dict(env)


def _found(session: Session, call: Call) -> Preset:
    row = presets.get(session, call.args["id"])
    if row is None:
        raise NotFound(say("there is no preset %(id)s", id=call.args["id"]))
    return row


def _full(call: Call, session: Session, row: Preset) -> dict[str, Any]:
    return _shape(call, row, users.names(session, {row.owner_id}))


def _saved(call: Call, session: Session, row: Preset) -> dict[str, Any]:
    return {**_full(call, session, row), "hints": _hints(call, session, row)}


def _hints(call: Call, session: Session, row: Preset) -> list[dict[str, str]]:
    """Nodes on which the model is incomplete, or loading would probably take longer than it may."""
    entry = models.find(session, row.model)
    found = []
    for held, node in entry.held if entry else ():
        if missing := missing_of(held):
            hint = incomplete_hint(missing, node.name)
            found.append({"code": hint.code, "message": str(hint)})
        seconds = load_seconds(session, node.id, row.model, row.name, view.speed(call.ctx.settings, node))
        limit = view.load_timeout(row.load_timeout_seconds, call.ctx.settings, node)
        if late := load_timeout_hint(seconds, limit, node.name):
            found.append({"code": late.code, "message": str(late)})
    return found[:5]


def _shape(call: Call, row: Preset, names: dict[str, str]) -> dict[str, Any]:
    prepared = _prepare(row.engine, list(row.args), dict(row.env), row.model, _Sample("/models/model"))
    return {**shapes.preset(row, call.actor, names, _dropped(prepared)), "unknown": list(prepared.unknown)}


def _dropped(prepared: Prepared) -> list[dict[str, str]]:
    return [{"argument": d.argument, "why": d.why} for d in prepared.dropped]


def _record(row: Preset) -> dict[str, Any]:
    """For the audit trail: without the values of the environment, which are secret."""
    return {
        "model": row.model,
        "name": row.name,
        "engine": row.engine,
        "args": list(row.args),
        "env": sorted(row.env),
        "load_timeout_seconds": row.load_timeout_seconds,
    }


_NONE = {404: "No such preset"}
_TAKEN = {409: "The name is taken, or the preset is in use or was changed meanwhile"}
ROUTES = (
    Route("GET", "/presets", list_presets, "Presets, by model and name", query=PresetPage),
    Route("POST", "/presets", create, "A new preset; `dropped` says what SlotServe owns", body=NewPreset, status=201,
          answers=_TAKEN),
    Route("POST", "/presets/check", check, "What the engine would be started with; writes nothing", body=PresetCheck),
    Route("GET", "/presets/<id>", one_preset, "A preset", answers=_NONE),
    Route("PATCH", "/presets/<id>", change, "Edits a preset", body=PresetChange, answers={**_NONE, **_TAKEN}),
    Route("DELETE", "/presets/<id>", delete, "Deletes a preset; bookings go on with it as it was", status=204,
          answers={**_NONE, **_TAKEN}),
)  # fmt: skip
