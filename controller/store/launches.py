"""What a (model, preset) would be started with on a channel: the launch whose identity tells targets apart.

Launches are plain dictionaries, for they are kept in JSON columns (what a running reservation was started with, what a
channel was last decided to run) and compared by `identity`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypedDict

from sqlalchemy import BindParameter, Select, bindparam, select
from sqlalchemy.orm import Session

from agent.engines import ENGINES, choose
from agent.engines.base import ArgumentError, Place, tokenise
from controller.scheduling.types import identity_of
from controller.store.estimates import LoadTimes, read_load_times
from controller.store.tables import Channel, Node, NodeModel, Preset

DISK_READ_MBPS = 500.0
_ANYWHERE = Place(model_path="model", served_names=(), engine_key="")


class Launch(TypedDict):
    """See `resolve`; `load_timeout_seconds` None = the setting in force."""

    identity: str
    model: str
    preset: str | None
    engine: str
    args: list[str]
    env: dict[str, str]
    load_timeout_seconds: float | None
    load_seconds: float


def resolve(
    session: Session,
    channel_row: Channel,
    node_row: Node,
    model: str,
    preset: str | None,
    disk_mbps: float = DISK_READ_MBPS,
) -> Launch | None:
    """What the channel would start for (model, preset) now, with its identity and load estimate; None where it could
    not: the model does not lie on the node or no engine of the channel loads it, the preset is unknown or deleted.

    `disk_mbps` is the controller's setting; the node's own wins. Three statements.
    """
    catalogue = read_catalogue(session, (node_row.id,), (model,))
    return catalogue.available(
        node_row.id, channel_row.engines, model, preset, disk_read_mbps(node_row.own_settings, disk_mbps)
    )


def disk_read_mbps(own_settings: Mapping[str, Any] | None, default: float) -> float:
    """The reading speed that a node's estimates are made with: its own setting, else the controller's."""
    own = (own_settings or {}).get("disk_read_mbps")
    return float(own) if own else default


class _Model(NamedTuple):
    format: str
    size_bytes: int
    gone: bool
    channels: Collection[str] = ()
    missing: str = ""


class _Preset(NamedTuple):
    engine: str
    args: Sequence[Any]
    env: Mapping[str, Any]
    load_timeout_seconds: float | None
    deleted: bool


class Catalogue:
    """Models, presets and load times of some nodes, read once; answers for any channel of theirs."""

    def __init__(
        self,
        models: Mapping[tuple[str, str], _Model],
        presets: Mapping[tuple[str, str], _Preset],
        load_times: LoadTimes,
    ) -> None:
        self._models = models
        self._presets = presets
        self._load_times = load_times
        self._made: dict[tuple[str, tuple[str, ...], str, str | None, float], Launch] = {}

    def size_on(self, node_id: str, channel: str, model: str) -> int | None:
        """The bytes of a model that lies in this channel's folders, else None."""
        known = self._models.get((node_id, model))
        return None if known is None or known.gone or channel not in known.channels else known.size_bytes

    def missing_on(self, node_id: str, model: str) -> str:
        """What an incomplete model lacks on a node, in the node's words; "" where it is complete."""
        known = self._models.get((node_id, model))
        return "" if known is None else known.missing

    def available(
        self, node_id: str, engines: Sequence[str], model: str, preset: str | None, disk_mbps: float
    ) -> Launch | None:
        """As `resolve` says."""
        known = self._models.get((node_id, model))
        if known is None or known.gone:
            return None
        if preset is None:
            engine = choose(engines, known.format)
            if engine is None:
                return None
        else:
            found = self._presets.get((model, preset))
            if found is None or found.deleted or (engines and found.engine not in engines):
                return None
        return self.launch(node_id, engines, model, preset, disk_mbps)

    def launch(self, node_id: str, engines: Sequence[str], model: str, preset: str | None, disk_mbps: float) -> Launch:
        """What is to be planned for (model, preset), whatever is missing: the node looks before it starts anything, says
        what it lacks, and serves the fallback meanwhile. A deleted preset goes on as it was."""
        key = (node_id, tuple(engines), model, preset, disk_mbps)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._make(*key)
        return made

    def _make(self, node_id: str, engines: Sequence[str], model: str, preset: str | None, disk_mbps: float) -> Launch:
        known = self._models.get((node_id, model))
        found = None if preset is None else self._presets.get((model, preset))
        args: list[str] = []
        env: dict[str, str] = {}
        if found is None:
            engine = (choose(engines, known.format) if known else None) or next(iter(engines), "")
            timeout = None
        else:
            engine, timeout = found.engine, found.load_timeout_seconds
            args, env = _kept(engine, _tokens(found.args), found.env or {})
        return Launch(
            identity=identity_of(model, preset, engine, args, env),
            model=model,
            preset=preset,
            engine=engine,
            args=args,
            env=env,
            load_timeout_seconds=timeout,
            load_seconds=self._load_times.seconds(node_id, model, preset, known.size_bytes if known else 0, disk_mbps),
        )

    def load_seconds(self, node_id: str, model: str, preset: str | None, disk_mbps: float) -> float:
        """The load estimate of a target alone."""
        known = self._models.get((node_id, model))
        return self._load_times.seconds(node_id, model, preset, known.size_bytes if known else 0, disk_mbps)


def read_catalogue(
    session: Session, node_ids: Collection[str], models: Collection[str], *, presets: bool = True
) -> Catalogue:
    """Everything that launches of these models on these nodes depend on. Three statements, however many there are; two
    where no preset is asked for."""
    models_of, presets_of = _statements()
    wanted = {"nodes": list(node_ids), "models": list(models)}
    rows = session.execute(models_of, wanted)
    found = {
        (r.node_id, r.name): _Model(r.format, r.size_bytes, r.gone_at is not None, r.channels, missing_of(r))
        for r in rows
    }
    named: dict[tuple[str, str], _Preset] = {}
    for r in session.execute(presets_of, wanted) if presets else ():
        named[r.model, r.name] = _Preset(r.engine, r.args, r.env, r.load_timeout_seconds, r.deleted_at is not None)
    return Catalogue(found, named, read_load_times(session, node_ids, models))


def missing_of(row: Any) -> str:
    """What a NodeModel lacks, in words; "" where it is complete."""
    return (row.detail or "files are missing") if row.incomplete else ""


@cache
def _statements() -> tuple[Select[*tuple[Any, ...]], Select[*tuple[Any, ...]]]:
    """Made once: to put a statement together takes longer than to run it."""
    nodes: BindParameter[Any] = bindparam("nodes", expanding=True)
    models: BindParameter[Any] = bindparam("models", expanding=True)
    row, preset = NodeModel, Preset
    return (
        select(
            row.node_id, row.name, row.format, row.size_bytes, row.gone_at, row.channels, row.incomplete, row.detail
        ).where(row.node_id.in_(nodes), row.name.in_(models)),
        select(
            preset.model,
            preset.name,
            preset.engine,
            preset.args,
            preset.env,
            preset.load_timeout_seconds,
            preset.deleted_at,
        )
        .where(preset.model.in_(models))
        .order_by(preset.deleted_at.is_(None), preset.deleted_at, preset.id),  # the one in force comes last and wins
    )


def _kept(engine: str, args: list[str], env: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """What the engine would be started with of a preset: what SlotServe owns is taken out, and makes no other target."""
    if engine not in ENGINES:
        return args, {str(name): str(value) for name, value in sorted(env.items())}
    kept, rest = _kept_by(engine, tuple(args), tuple(sorted((str(n), str(v)) for n, v in env.items())))
    return list(kept), dict(rest)


@lru_cache(maxsize=4096)
def _kept_by(
    engine: str, args: tuple[str, ...], env: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    prepared = ENGINES[engine].prepare((), args, dict(env), _ANYWHERE, {})
    gone = {dropped.argument for dropped in prepared.dropped}
    return prepared.kept, tuple((name, value) for name, value in env if name not in gone)


def _tokens(args: Any) -> list[str]:
    try:
        return tokenise(args)
    except ArgumentError:  # refused when a preset is saved; a row written otherwise must not stop the planning
        return [str(args)]
