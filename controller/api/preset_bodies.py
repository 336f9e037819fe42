"""What the calls about presets take."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from controller.api.route import Body, Page
from controller.said import say

EngineName = Literal["llama.cpp", "vllm", "sglang", "simulated"]
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
