"""The real parsers as services: started in the engines' own environment, asked one command line after the other.

`make test-arguments` makes that environment below .parts; SLOTSERVE_TEST_ENGINES names one that is somewhere else.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
VLLM = "0.32.0"
SGLANG = "0.5.23"


def environment_folder() -> Path:
    """The virtual environment with vLLM, and SGLang's package unpacked in its folder `sglang`."""
    return Path(os.environ.get("SLOTSERVE_TEST_ENGINES") or ROOT / ".parts" / "engines")


def missing(engine: str) -> str | None:
    """Why an engine's parser cannot be asked here, or None."""
    folder = environment_folder()
    wanted = folder / ("sglang/sglang/srt/server_args.py" if engine == "sglang" else "bin/vllm")
    if (folder / "bin" / "python").exists() and wanted.exists():
        return None
    return f"{wanted} is not there: run `make engine-parsers`"


class RealParser:
    """One engine's parser. `options` is its own list; `ask` tells what it makes of a command line."""

    def __init__(self, engine: str) -> None:
        folder = environment_folder()
        env = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1"}
        if engine == "sglang":
            env["PYTHONPATH"] = str(folder / "sglang")
        self._process = subprocess.Popen(
            [str(folder / "bin" / "python"), str(Path(__file__).with_name(f"{engine}_parser.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            text=True,
        )
        self.options: list[dict[str, Any]] = self._answer()["options"]

    def ask(self, arguments: Sequence[str]) -> dict[str, Any]:
        """`arguments`: what follows the program's name."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(arguments)) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the parser's program ended with status {self._process.wait(30)}")
        return json.loads(line)
