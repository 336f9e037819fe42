"""The committed gRPC code is what the .proto files give with the pinned compiler."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_generated_code_is_current(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    from protos.generate import generate

    generate(tmp_path)
    fresh = {p.name: p.read_text() for p in (tmp_path / "protos").iterdir()}
    committed = {n: (ROOT / "protos" / n).read_text() for n in fresh if (ROOT / "protos" / n).exists()}
    assert fresh.keys() == committed.keys(), "run `make protos` and commit what is new"
    stale = sorted(n for n in fresh if fresh[n] != committed[n])
    assert not stale, f"run `make protos`: {stale} no longer match the .proto files"
