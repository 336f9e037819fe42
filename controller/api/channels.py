"""Channels: what should run, what runs and why; defaults, lead and policy; reload and retry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema
from sqlalchemy.orm import Session

from controller.api.route import Answer, Body, Call, Page, Ready, Route, cursor, listed, place, ready
from controller.booking import view
from controller.channel_view import Seen, see, shape_all
from controller.errors import Conflict, Invalid, NotFound
from controller.fleet import planner_store
from controller.said import say
from controller.scheduling.policies import Policy, PolicyError, policy_of
from controller.store import audit, channels, models, reservations, users
from controller.store.session import Write
from controller.store.tables import Channel, Command, Node
from controller.times import text_of

COMMAND_MS = 30_000  # a command that has not reached the node by then is dropped
WEEK_SECONDS = 7 * 86_400
NO_LIMIT = (
    "max_hours",
    "max_days_ahead",
    "min_minutes",
    "max_hours_held",
    "max_hours_week",
    "max_concurrent",
    "max_concurrent_per_key",
)  # 0 says "no limit", as null does
Name = Annotated[str | None, Field(max_length=512), AfterValidator(lambda text: text or None)]
Preset = Annotated[str | None, Field(max_length=200), AfterValidator(lambda text: text or None)]


class ChannelPage(Page):
    node: str | None = Field(None, max_length=63)


def _policy_schema() -> dict[str, Any]:
    """Of a change: 0 says "no limit" where null does."""
    schema = Policy.model_json_schema()
    for name in NO_LIMIT:
        for arm in schema["properties"][name]["anyOf"]:
            arm.update({"minimum": 0} if "minimum" in arm else {})
    return {"anyOf": [schema, {"type": "null"}]}


class ChannelChange(Body):
    default_model: Name = None
    default_preset: Preset = None
    preload_lead_seconds: float | None = Field(None, ge=0, le=WEEK_SECONDS, allow_inf_nan=False)
    policy: Annotated[dict[str, Any] | None, WithJsonSchema(_policy_schema())] = Field(
        None, description="Merged into what is set, rule by rule; null takes everything back"
    )
    reason: str = Field("", max_length=2000)


class Reason(Body):
    reason: str = Field("", max_length=2000)


def list_channels(call: Call) -> Ready:
    ctx, query = call.ctx, call.query(ChannelPage)
    after = place(query.cursor, str, str)

    def read() -> tuple[tuple[Seen, str | None], int]:
        with ctx.store.read() as session:
            rows = channels.page(session, query.limit + 1, (after[0], after[1]) if after else None, query.node)
            seen = see(session, ctx, rows[: query.limit], call.now)
        page = listed(rows, query.limit, lambda r: r, lambda r: cursor(r[1].name, r[0].name))
        return (seen, page["next"]), seen.until

    def make(read: tuple[Seen, str | None]) -> Ready:
        seen, following = read
        return ready({"items": seen.shapes(call.actor, call.now), "next": following})

    what = ("channels", query.limit, query.cursor, query.node)
    made: Ready = ctx.polled.get(ctx.store, ctx.live, what, (call.actor.id, call.actor.role), call.now, read, make)
    return made


def one_channel(call: Call) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        return shape_one(session, call, *found(session, call))


def change(call: Call) -> dict[str, Any]:
    body = call.body(ChannelChange)
    given = body.model_dump(exclude_unset=True, exclude={"reason"})
    with call.ctx.store.write() as session:
        channel, node = found(session, call)
        before = _settable(channel)
        if "default_model" in given or "default_preset" in given:
            _default(session, call, channel, node, given)
        if "preload_lead_seconds" in given:
            channel.preload_lead_seconds = given["preload_lead_seconds"]
        if "policy" in given:
            channel.policy = _policy(session, call, channel, given["policy"])
        session.touch(channel.id)
        audit.add(
            session, call.actor.id, "channel.change", f"{node.name}/{channel.name}", call.now,
            before=before, after=_settable(channel), reason=body.reason,
        )  # fmt: skip
    return one_channel(call)


def reload(call: Call) -> Answer:
    return _command(call, "reload")


def retry(call: Call) -> Answer:
    return _command(call, "retry")


def found(session: Session, call: Call) -> tuple[Channel, Node]:
    """The channel of the path. Raises NotFound."""
    row = channels.find(session, call.args["node"], call.args["name"])
    if row is None:
        raise NotFound(say("there is no channel %(node)s/%(name)s", node=call.args["node"], name=call.args["name"]))
    return row


def shape_one(session: Session, call: Call, channel: Channel, node: Node) -> dict[str, Any]:
    return shape_all(session, call.ctx, call.actor, [(channel, node)], call.now)[0]


def runnable(
    session: Session, call: Call, channel: Channel, node: Node, model: str, preset: str | None, prefix: str = ""
) -> None:
    """Raises Invalid naming `<prefix>model` or `<prefix>preset` unless the channel can run it."""
    place = view.Place(channel, node)
    if models.on_channel(session, channel, model) is None:
        raise Invalid.field(
            f"{prefix}model", say("there is no model %(model)s in this channel's folders", model=repr(model))
        )
    if view.launch_of(session, call.ctx.settings, place, model, preset) is None:
        if preset is None:
            raise Invalid.field(
                f"{prefix}model", say("no engine of this channel can load %(model)s", model=repr(model))
            )
        raise Invalid.field(
            f"{prefix}preset",
            say(
                "there is no preset %(preset)s of %(model)s that this channel can run",
                preset=repr(preset),
                model=repr(model),
            ),
        )


def _default(session: Write, call: Call, channel: Channel, node: Node, given: dict[str, Any]) -> None:
    model = given.get("default_model", channel.default_model)
    same = model == channel.default_model
    preset = given.get("default_preset", channel.default_preset if same else None)
    if model is None:
        if given.get("default_preset") is not None:
            raise Invalid.field("default_preset", say("needs a default_model"))
        preset = None
    else:
        runnable(session, call, channel, node, model, preset, "default_")
    channel.default_model, channel.default_preset = model, preset


def _policy(session: Session, call: Call, channel: Channel, given: dict[str, Any] | None) -> dict[str, Any]:
    if given is None:
        return {}
    merged = {**(channel.policy or {}), **given}
    merged |= {name: None for name in NO_LIMIT if merged.get(name, 1) == 0 and merged.get(name) is not False}
    merged |= {name: None for name in ("allowed_users", "allowed_roles") if merged.get(name) == []}
    try:
        policy = policy_of(merged, *call.ctx.settings.booking_limits)
    except PolicyError as err:
        raise Invalid.field(err.field, err.problem) from None
    if policy.allowed_users is not None:
        merged["allowed_users"] = _people(session, policy.allowed_users)
    return merged


def _people(session: Session, wanted: Sequence[str]) -> list[str]:
    """Ids of people by id or name: a policy stays what it is when somebody is renamed."""
    known = users.find_all(session, wanted)
    if missing := [one for one in wanted if one not in known]:
        raise Invalid.field(
            "policy.allowed_users", say("there is nobody with the id or name %(name)s", name=repr(missing[0]))
        )
    return list(dict.fromkeys(known[one].id for one in wanted))


def _command(call: Call, kind: str) -> Answer:
    """reload or retry: for administrators, and the holder while the reservation runs."""
    ctx, reason = call.ctx, call.body(Reason).reason
    with ctx.store.write() as session:
        channel, node = found(session, call)
        running = reservations.running(session, channel.id, call.now)
        call.need(f"channel.{kind}", running)
        if not ctx.live.node(node.name).online:
            raise Conflict(
                say("node %(node)s is away; it goes on by its plan and hears nothing until it is back", node=node.name)
            )
        if kind == "reload" and running is not None:
            planner_store.repin(session, running.id)  # what was edited since is taken now
        row = Command(
            node_id=node.id,
            channel=channel.name,
            kind=kind,
            actor_id=call.actor.id,
            created_at=call.now,
            deadline=call.now + COMMAND_MS,
        )
        session.add(row)
        session.flush()
        session.touch(channel.id)
        audit.add(session, call.actor.id, f"channel.{kind}", f"{node.name}/{channel.name}", call.now, reason=reason)
    ctx.wake_commands()
    return Answer({"id": row.id, "kind": kind, "state": row.state, "deadline": text_of(row.deadline)}, 202)


def one_command(call: Call) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        channel, node = found(session, call)
        row = session.get(Command, call.args["id"])
        if row is None or row.node_id != node.id or row.channel != channel.name:
            raise NotFound(say("there is no such command of this channel"))
        return {"id": row.id, "kind": row.kind, "state": row.state, "answer": row.answer or None}


def _settable(channel: Channel) -> dict[str, Any]:
    names = ("default_model", "default_preset", "preload_lead_seconds", "policy")
    return {name: getattr(channel, name) for name in names}


_PATH = "/channels/<node>/<name>"
_NONE = {404: "No such channel"}
_AWAY = {**_NONE, 409: "The node is away"}
ROUTES = (
    Route("GET", "/channels", list_channels, "Channels, by node and name", query=ChannelPage),
    Route("GET", _PATH, one_channel, "A channel", answers=_NONE),
    Route("PATCH", _PATH, change, "Sets default, lead and policy", body=ChannelChange, action="channel.configure",
          answers=_NONE),
    Route("POST", f"{_PATH}/reload", reload, "Restarts what runs, without a drain; edits are taken", body=Reason,
          status=202, answers=_AWAY),
    Route("POST", f"{_PATH}/retry", retry, "Tries a failed target again at once", body=Reason, status=202,
          answers=_AWAY),
    Route("GET", f"{_PATH}/commands/<id>", one_command, "What became of a reload or retry", answers=_NONE),
)  # fmt: skip
