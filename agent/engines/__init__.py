"""The engines that SlotServe can start, by name."""

from __future__ import annotations

from collections.abc import Sequence

from agent.engines.base import Engine
from agent.engines.llamacpp import LlamaCpp
from agent.engines.sglang import Sglang
from agent.engines.simulated import Simulated
from agent.engines.vllm import Vllm

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (LlamaCpp(), Vllm(), Sglang(), Simulated())}
names: tuple[str, ...] = tuple(ENGINES)


class UnknownEngine(ValueError):
    """No engine has this name; the message lists those that there are."""


def get(name: str) -> Engine:
    """The engine of this name; UnknownEngine where there is none."""
    try:
        return ENGINES[name]
    except KeyError:
        raise UnknownEngine(f"engine: {name!r} is not one of {', '.join(names)}") from None


def can_load(engine: str, model_format: str) -> bool:
    """Whether an engine loads models of a format ("gguf", "safetensors"). An unknown engine loads nothing."""
    return engine in ENGINES and model_format in ENGINES[engine].formats


def choose(engines: Sequence[str], model_format: str) -> str | None:
    """The first of a channel's engines that can load a format, or None."""
    return next((name for name in engines if can_load(name, model_format)), None)
