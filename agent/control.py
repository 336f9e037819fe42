"""How `slotserve-agent status` and `stop-engines` speak to the running agent: one JSON line each way, over a Unix socket.

<run>/control.sock, for the agent's own user. {"ask": "status"} or {"ask": "stop_engines"}; the answer is an object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from agent.errors import AgentError

log = logging.getLogger(__name__)
Answer = Callable[[], Awaitable[dict[str, Any]]]


class NotRunning(AgentError):
    """No agent listens here."""


def path_of(run_dir: Path) -> Path:
    return run_dir / "control.sock"


async def serve(run_dir: Path, answers: Mapping[str, Answer]) -> asyncio.Server:
    """Answers until closed. The caller has the agent's lock, so that an old socket is nobody's."""
    path = path_of(run_dir)
    path.unlink(missing_ok=True)

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                line = await reader.readline()
            ask = json.loads(line).get("ask")
            answer = answers.get(ask)
            said = await answer() if answer else {"error": f"{ask!r} is not known here"}
            writer.write(json.dumps(said).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError, AttributeError, TimeoutError) as err:
            log.warning("control request failed error=%r", err)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_unix_server(on_connect, path)
    os.chmod(path, 0o600)
    return server


def ask(run_dir: Path, question: str, seconds: float = 120.0) -> dict[str, Any]:
    """The running agent's answer. Raises NotRunning, or AgentError where it did not answer."""
    path = path_of(run_dir)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(seconds)
        try:
            sock.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunning(f"{path}: no agent runs with this folder") from None
        except OSError as err:
            raise AgentError(f"{path}: {err.strerror or err}") from None
        try:
            sock.sendall(json.dumps({"ask": question}).encode() + b"\n")
            with sock.makefile("rb") as file:
                return json.loads(file.readline())
        except (OSError, ValueError) as err:
            raise AgentError(f"the agent did not answer: {err}") from None
