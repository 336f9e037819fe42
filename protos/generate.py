"""Regenerates the gRPC code beside the .proto files: `python -m protos.generate [OUT]`.

The generated files are committed; tests/test_generated.py regenerates into a scratch folder and compares.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def generate(out: Path) -> None:
    """Writes *_pb2.py, *_pb2.pyi and *_pb2_grpc.py below `out`/protos. Raises RuntimeError when protoc refuses."""
    from grpc_tools import protoc

    names = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "protos").glob("*.proto"))
    code = protoc.main(
        ["protoc", f"-I{ROOT}", f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}", *names]
    )
    if code:
        raise RuntimeError(f"protoc refused the .proto files (exit status {code})")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
