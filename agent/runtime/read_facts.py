"""Reads what model files say of themselves: a short-lived helper process, for the gguf library brings numpy, and a file
that is broken in a new way must not take the agent along.

    python -m agent.runtime.read_facts      questions on standard input, answers on standard output, a JSON line each
    {"format": "gguf" | "safetensors", "path": …, "files": […]} -> {"architecture", "context_length", "quantisation",
    "parameters"} as far as they are known, or {"error"}

It is the last to get processor time and the disk.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

LONGEST_HEADER = 64 << 20
DTYPES = {"BF16": "BF16", "F16": "FP16", "F32": "FP32", "F8_E4M3": "FP8", "F8_E5M2": "FP8"}


def main() -> None:
    from agent.runtime.idle_io import be_last

    be_last()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            facts = gguf(asked["files"]) if asked["format"] == "gguf" else safetensors(asked["path"], asked["files"])
        except Exception as err:  # noqa: BLE001  whatever a file makes the library stumble over
            facts = {"error": f"{type(err).__name__}: {err}"[:300]}
        print(json.dumps(facts), flush=True)


def gguf(files: list[str]) -> dict[str, Any]:
    """Of a GGUF file, or of a split set: what it is stands in its first part, tensors in all."""
    from gguf import GGUFReader

    first = GGUFReader(files[0])
    architecture = str(_value(first, "general.architecture") or "")
    kinds: Counter[str] = Counter()
    parameters = 0
    for reader in (first, *(GGUFReader(f) for f in files[1:])):
        for tensor in reader.tensors:
            parameters += int(tensor.n_elements)
            kinds[tensor.tensor_type.name] += int(tensor.n_bytes)
    return {
        "architecture": architecture,
        "context_length": int(_value(first, f"{architecture}.context_length") or 0),
        "quantisation": _file_type(_value(first, "general.file_type")) or (kinds.most_common(1)[0][0] if kinds else ""),
        "parameters": parameters,
    }


def safetensors(folder: str, files: list[str]) -> dict[str, Any]:
    """Of a Hugging Face folder: config.json, and the shapes in the files' headers."""
    config = json.loads(Path(folder, "config.json").read_bytes())
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    quantised = config.get("quantization_config") if isinstance(config.get("quantization_config"), dict) else {}
    kinds: Counter[str] = Counter()
    for file in files:
        with Path(file).open("rb") as f:
            length = int.from_bytes(f.read(8), "little")
            if length > LONGEST_HEADER:
                raise ValueError(f"{os.path.basename(file)} is no safetensors file")
            header = json.loads(f.read(length))
        for name, tensor in header.items():
            if name != "__metadata__":
                kinds[str(tensor["dtype"])] += prod(tensor["shape"])
    most = kinds.most_common(1)[0][0] if kinds else ""
    architectures = config.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else config.get("model_type")
    context = config.get("max_position_embeddings") or text.get("max_position_embeddings") or 0
    method = str(quantised.get("quant_method") or "")
    packed = method in ("gptq", "awq")  # several weights in one number: their count is not known
    return {
        "architecture": str(named or ""),
        "context_length": context if isinstance(context, int) else 0,
        "quantisation": method.upper() or DTYPES.get(most, most),
        "parameters": 0 if packed else sum(kinds.values()),
    }


def _value(reader: Any, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()


def _file_type(number: Any) -> str:
    from gguf import LlamaFileType

    try:
        return LlamaFileType(int(number)).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except (TypeError, ValueError):
        return ""


if __name__ == "__main__":
    main()
