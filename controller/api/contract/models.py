"""Answers about models as they lie on the nodes' disks, and about presets."""

from __future__ import annotations

from typing import Literal

from controller.api.contract.base import Hint, Shape, Time

Engine = Literal["llama.cpp", "vllm", "sglang", "simulated"]


class ModelCopy(Shape):
    node: str
    size_bytes: int
    format: str
    incomplete: bool
    detail: str | None
    seen_at: Time
    rotating_disk: bool | None
    path: str | None = None
    """For administrators"""


class Model(Shape):
    """A model of the fleet; the tables by channel have a member for each channel whose folders hold it."""

    name: str
    size_bytes: int
    format: str
    architecture: str | None
    context_length: int | None
    quantisation: str | None
    parameters: int | None
    projector: str | None
    incomplete: bool
    detail: str | None
    nodes: list[str]
    channels: list[str]
    exceeds_gpu_memory: dict[str, bool]
    load_seconds: dict[str, float]
    engines: list[str]
    engines_by_channel: dict[str, list[str]]
    copies: list[ModelCopy]


class Dropped(Shape):
    argument: str
    why: str


class Preset(Shape):
    id: str
    model: str
    name: str
    engine: Engine
    args: list[str]
    env: dict[str, str | None]
    """Values are null for who may not see them"""
    load_timeout_seconds: float | None
    owner_id: str | None
    owner: str | None
    version: int
    created_at: Time
    updated_at: Time
    dropped: list[Dropped]
    """What SlotServe owns and took out"""
    unknown: list[str]
    """Options that the engine does not know"""
    gpu_memory_bytes: int | None
    """That it took on a channel's GPUs when it was last loaded; null: not measured"""


class PresetSaved(Preset):
    hints: list[Hint]


class PresetChecked(Shape):
    """What the engine would be started with."""

    command: list[str]
    env: dict[str, str]
    dropped: list[Dropped]
    unknown: list[str]
    needs_permission: list[str]
    """What only an administrator may save"""
    kept: list[str]
    suggestions: dict[str, str]
    """What unknown options were probably meant to be"""
