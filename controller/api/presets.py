"""Presets: engine parameters with a name. What SlotServe owns is told in `dropped`; what could run code needs an
administrator. An edit acts at once everywhere but in running reservations, which keep what they were started with."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from controller import shapes
from controller.api.preset_arguments import Sample, check, checked_env, dropped, need_permission, prepare, tokens_of
from controller.api.preset_bodies import NewPreset, PresetChange, PresetCheck, PresetPage
from controller.api.route import Call, Route, cursor, listed, place
from controller.booking import view
from controller.errors import Conflict, Invalid, NotFound
from controller.rights import Owned
from controller.said import say
from controller.scheduling.hints import incomplete_hint, load_timeout_hint
from controller.store import audit, channels, load_history, models, presets, users
from controller.store.estimates import load_seconds
from controller.store.launches import missing_of
from controller.store.session import Write
from controller.store.tables import Preset


def list_presets(call: Call) -> dict[str, Any]:
    query = call.query(PresetPage)
    after = place(query.cursor, str, str, str)
    with call.ctx.store.read() as session:
        rows = presets.page(session, query.limit + 1, (after[0], after[1], after[2]) if after else None, query.model)
        names = users.names(session, {r.owner_id for r in rows})
        took = load_history.gpu_memory(session, {r.model for r in rows})
    return listed(rows, query.limit, lambda r: _shape(call, r, names, took), lambda r: cursor(r.model, r.name, r.id))


def one_preset(call: Call) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        return _full(call, session, _found(session, call))


def create(call: Call) -> dict[str, Any]:
    body = call.body(NewPreset)
    tokens = tokens_of(body.args)
    checked_env(body.env)
    with call.ctx.store.write() as session:
        if models.find(session, body.model) is None:
            raise Invalid.field(
                "model", say("there is no model %(model)s; see the list of models", model=repr(body.model))
            )
        _not_taken(session, body.model, body.name)
        need_permission(call, body.engine, tokens, body.env)
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
        tokens = tokens_of(body.args) if "args" in given else list(row.args)
        env = dict(row.env) if body.env is None else checked_env(body.env)
        if (engine, tokens, env) != (row.engine, list(row.args), dict(row.env)):
            need_permission(call, engine, tokens, env)
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
    _not_taken(session, row.model, name)
    uses = presets.uses(session, row, now)
    if uses:
        raise Conflict(
            say("name: the preset is in use (%(list)s); change those first", list="; ".join(uses[:5])),
            details={"uses": uses},
        )
    row.name = name


def _not_taken(session: Session, model: str, name: str) -> None:
    if presets.find(session, model, name) is not None:
        raise Conflict(
            say("name: %(model)s has a preset %(name)s already", model=model, name=repr(name)),
            details={"name": say("is taken")},
        )


def _found(session: Session, call: Call) -> Preset:
    row = presets.get(session, call.args["id"])
    if row is None:
        raise NotFound(say("there is no preset %(id)s", id=call.args["id"]))
    return row


def _full(call: Call, session: Session, row: Preset) -> dict[str, Any]:
    took = load_history.gpu_memory(session, [row.model])
    return _shape(call, row, users.names(session, {row.owner_id}), took)


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


def _shape(call: Call, row: Preset, names: dict[str, str], took: dict[tuple[str, str | None], int]) -> dict[str, Any]:
    prepared = prepare(row.engine, list(row.args), dict(row.env), row.model, Sample("/models/model"))
    return {
        **shapes.preset(row, call.actor, names, dropped(prepared)),
        "unknown": list(prepared.unknown),
        "gpu_memory_bytes": took.get((row.model, row.name)),
    }


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
