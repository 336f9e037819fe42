"""What models' files say of themselves (architecture, context, quantisation, parameters), read once a file.

Reading is a helper process' work (read_facts.py); what it said is kept by path, time of change and size, over restarts
as well. A file that cannot be made sense of is not read again until it changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent.runtime.models import FoundModel
from protos.shared.files import write_private

log = logging.getLogger(__name__)
BATCH = 10  # questions to one helper
LONGEST = 60.0  # seconds for one answer
LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class Facts:
    """ "" and 0: not known."""

    architecture: str = ""
    context_length: int = 0
    quantisation: str = ""
    parameters: int = 0


class FactBook:
    """`of` at once, from what is known; `fill` reads what is not. `file` keeps it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = _load(file)

    def of(self, model: FoundModel) -> Facts:
        return self._known.get(_key(model), Facts())

    async def fill(self, models: Iterable[FoundModel]) -> bool:
        """Reads those that are not known yet, at most BATCH of them, and forgets those that are gone; True where
        anything has become known (then there may be more)."""
        models = tuple(models)
        wanted = [m for m in models if m.files and _key(m) not in self._known][:BATCH]
        if not wanted:
            return False
        self._known |= await _ask(wanted)
        keys = {_key(m) for m in models}
        self._known = {k: f for k, f in self._known.items() if k in keys}
        text = json.dumps({k: asdict(f) for k, f in self._known.items()})
        try:
            await asyncio.to_thread(write_private, self._file, text.encode(), sync=False)
        except OSError as err:
            log.warning("what models say of themselves is not kept file=%s error=%s", self._file, err)
        return True


async def _ask(models: list[FoundModel]) -> dict[str, Facts]:
    """What a helper says of these; of one that it stumbles over, nothing."""
    said: dict[str, Facts] = {}
    helper = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agent.runtime.read_facts",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, limit=LINE,
        start_new_session=True,
    )  # fmt: skip
    assert helper.stdin is not None
    assert helper.stdout is not None
    try:
        for model in models:
            asked = {"format": model.format, "path": model.path, "files": model.files}
            said[_key(model)] = Facts()
            helper.stdin.write(json.dumps(asked).encode() + b"\n")
            try:
                async with asyncio.timeout(LONGEST):
                    await helper.stdin.drain()
                    answer = json.loads(await helper.stdout.readline())
            except (TimeoutError, ValueError, OSError) as err:
                log.warning("model not read model=%s error=%r", model.name, err)
                break  # the helper hangs or has ended: the others are asked of the next one
            if "error" in answer:
                log.info("model says nothing of itself model=%s why=%r", model.name, answer["error"])
            said[_key(model)] = _facts(answer)
    finally:
        with contextlib.suppress(ProcessLookupError):
            helper.kill()
        await helper.wait()
    return said


def _facts(said: Mapping[str, Any]) -> Facts:
    try:
        return Facts(
            architecture=str(said.get("architecture", ""))[:100],
            context_length=min(max(0, int(said.get("context_length", 0))), 1 << 53),
            quantisation=str(said.get("quantisation", ""))[:32],
            parameters=min(max(0, int(said.get("parameters", 0))), 1 << 53),
        )
    except (TypeError, ValueError):
        return Facts()


def _key(model: FoundModel) -> str:
    return f"{model.path}|{model.size_bytes}|{model.stamp}"


def _load(file: Path) -> dict[str, Facts]:
    try:
        return {str(k): _facts(v) for k, v in json.loads(file.read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as err:
        log.warning("what models said of themselves is read anew file=%s error=%s", file, err)
        return {}
