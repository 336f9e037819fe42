"""nginx as tests and benchmarks use it: a real one on a free port, started without root and ended with the test."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.parts import Child, running, wait_until

FRAME = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_requests 1000000;
  {servers}
}}
"""
PLAIN_PROXY = """
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://unix:{engine}:; proxy_http_version 1.1; proxy_set_header Connection close; proxy_buffering off; }}
  }}
"""


def find_nginx() -> str | None:
    """The program (nginx-light is enough), also where only root's PATH has it."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def running_nginx(program: str, folder: Path, servers: str, ports: Sequence[int]) -> Iterator[Child]:
    """nginx with these `server` blocks, until the end of the block; it listens on `ports` when the block begins."""
    config = folder / "nginx.conf"
    config.write_text(FRAME.format(folder=folder, servers=servers))
    with running(
        [program, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")], folder / "nginx.log"
    ) as child:
        wait_until(lambda: all(map(listens, ports)) or not child.alive(), 10, "nginx listens")
        assert child.alive(), child.output() + (folder / "error.log").read_text()
        yield child


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
