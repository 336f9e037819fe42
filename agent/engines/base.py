"""What an engine is to SlotServe: how its command line is made, what of a preset SlotServe owns, what its words mean.

Pure: no process, no file. The controller imports this room to check presets; the agent to start engines.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol


class ArgumentError(ValueError):
    """A preset's arguments or environment cannot be used; the message names the field and the remedy."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """An argument (or environment variable) of a preset that SlotServe took out, and why."""

    argument: str
    why: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine is to run. `served_names`: the catalogue name, then one unique to the start (`unique_name`).

    Either `socket` (path) or host + port. `home` and `tmpdir` are private to the launch; `cache` is the channel's, kept over
    launches for what engines compile ("": in the home).
    """

    model_path: str
    served_names: tuple[str, ...]
    engine_key: str
    socket: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    gpu_uuids: tuple[str, ...] = ()
    home: str = "/nonexistent"
    tmpdir: str = "/tmp"
    cache: str = ""
    projector: str = ""  # the mmproj file that belongs to the model


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the engine would be started with, and what became of the preset's arguments: `kept` are those that count, in
    the engine's own spelling (`--a=b` in two where it wants two), and so part of what tells two presets apart."""

    command: tuple[str, ...]
    env: dict[str, str]
    dropped: tuple[Dropped, ...] = ()
    unknown: tuple[str, ...] = ()
    needs_permission: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: `code` as waitstatus_to_exitcode gives it (negative: by that signal), None = still running."""

    code: int | None
    timed_out: bool = False  # not ready within its load time-out
    was_ready: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """A failure in words: `category` as the REST answers name it, `reason` with what to lower or mend, `detail` the engine's line."""

    category: str
    reason: str
    detail: str = ""


class Engine(Protocol):
    """One engine's ways. Implementations are stateless module-level objects."""

    name: str
    formats: frozenset[str]
    unix_socket: bool
    beside: tuple[int, ...]  # how far from its own TCP port it may open others
    # Files that the engine reads before its arguments, and nobody but an administrator can have made.
    system_config_files: tuple[str, ...]

    def prepare(
        self,
        program: Sequence[str],
        args: Sequence[str],
        env: Mapping[str, str],
        place: Place,
        inherited: Mapping[str, str],
        node_env: Mapping[str, str] = MappingProxyType({}),
    ) -> Prepared:
        """The final command and environment: owned ones removed in every spelling, ours appended last.

        `inherited` is the agent's own environment: only what is known to be needed gets through (environment.py).
        `node_env` is what the node's file says for the engine: all of it but what SlotServe owns. Total: never raises
        for any token list."""
        ...

    def served_names(self, place: Place) -> tuple[str, ...]:
        """The names that /v1/models will show for `place.served_names`."""
        ...

    def check_command(self, prepared: Prepared) -> tuple[str, ...] | None:
        """A command that only lets the engine read its arguments (exit 0, or 1 and its complaint) in well under a
        second, loading and opening nothing; None where the engine has none. Run it with `prepared.env`."""
        ...

    def suggest(self, flag: str) -> str | None:
        """The option that an unknown one was probably meant to be."""
        ...

    def classify(self, output: str, ended: Ended, args: Sequence[str]) -> Verdict:
        """What a failure means, from the end of the output (at least the last 64 KiB)."""
        ...


def unique_name(catalogue_name: str, launch_id: str) -> str:
    """A served name that only this start has; whoever answers to it is the engine that was started.

    It is the catalogue name with something behind it, so that it sorts after it: llama-server keeps its names sorted
    and shows the first in its answers. No comma, for there it separates names."""
    return f"{catalogue_name.replace(',', '_').strip()}~{launch_id.replace(',', '_')}"


def tokenise(args: str | Sequence[str] | None) -> list[str]:
    """A preset's arguments as tokens: a list stays as it is (each token stripped of outer white space, empty ones gone),
    a string is split as a POSIX shell splits words. Raises ArgumentError naming `args` where a quote is not closed."""
    if args is None:
        return []
    if isinstance(args, str):
        try:
            return shlex.split(args)
        except ValueError as err:
            raise ArgumentError(f"args: {err}; close the quote or put a backslash before it") from None
    tokens = [str(a).strip() for a in args]
    return [t for t in tokens if t]
