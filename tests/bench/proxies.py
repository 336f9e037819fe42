"""What the gateway's benchmark measures side by side: the gateway, nginx as a plain proxy, and the same job written with
aiohttp and with Starlette and httpx. One process each, all with the same engine behind them."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.load import KEY
from tests.nginx import PLAIN_PROXY, find_nginx, listens, running_nginx
from tests.parts import Child, free_port, running, wait_until

RUN = "import sys\nfrom agent.gateway.main import run\nfrom agent.settings import AgentSettings\nsys.exit(run(AgentSettings()))"


@dataclass
class Proxy:
    """A proxy that runs, and its figures: microseconds of processor time a request and a chunk (a round each), seconds to
    the first byte (a stream each), and of streams to the engine in between."""

    name: str
    child: Child
    port: int
    request: list[float] = field(default_factory=list)
    chunk: list[float] = field(default_factory=list)
    first_byte: list[float] = field(default_factory=list)
    direct: list[float] = field(default_factory=list)

    def cpu_us(self) -> float:
        """Processor time of the (single-threaded) process so far."""
        try:
            return int(Path(f"/proc/{self.child.pid}/schedstat").read_text().split()[0]) / 1000
        except (OSError, IndexError, ValueError):
            fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.child.pid}/status").read_text())
        return int(found.group(1)) / 1024 if found else 0.0


@contextmanager
def gateway(folder: Path, engine: Path) -> Iterator[Proxy]:
    """The real process, with everything on that an installation has, and an agent that takes its usage rows."""
    port = free_port()
    (folder / "node.toml").write_text(f'node = "n"\n[gateway]\nlisten = ["127.0.0.1:{port}"]\n')
    state = folder / "state"
    env = {
        **os.environ,
        "SLOTSERVE_NODE_FILE": str(folder / "node.toml"),
        "SLOTSERVE_AGENT_STATE_DIR": str(state),
        "SLOTSERVE_AGENT_RUN_DIR": str(state / "run"),
    }
    agent = [sys.executable, "-m", "tests.bench.agent", str(folder), str(engine)]
    with running(agent, folder / "agent.log"):
        wait_until((state / "gateway" / "keys.json").exists, 10, "the agent listens")
        with _process("gateway", [sys.executable, "-c", RUN], folder, port, env) as proxy:
            yield proxy


@contextmanager
def nginx(folder: Path, engine: Path) -> Iterator[Proxy | str]:
    """Or why there is none."""
    program = find_nginx()
    if program is None:
        yield "nginx is not on this machine"
        return
    port = free_port()
    with running_nginx(program, folder, PLAIN_PROXY.format(port=port, engine=engine), [port]) as child:
        yield Proxy("nginx", child, port)


@contextmanager
def python_peer(name: str, package: str, folder: Path, engine: Path) -> Iterator[Proxy | str]:
    """tests/bench/proxy_NAME.py, or why there is none."""
    if importlib.util.find_spec(package) is None:
        yield f"{package} is not installed: make bench brings it"
        return
    port = free_port()
    command = [sys.executable, "-m", f"tests.bench.proxy_{name}", str(port), str(engine), KEY]
    with _process(name, command, folder, port, dict(os.environ)) as proxy:
        yield proxy


@contextmanager
def _process(name: str, command: list[str], folder: Path, port: int, env: dict[str, str]) -> Iterator[Proxy]:
    with running(command, folder / f"{name}.log", env) as child:
        wait_until(lambda: listens(port) or not child.alive(), 10, f"{name} listens")
        assert child.alive(), child.output()
        yield Proxy(name, child, port)
