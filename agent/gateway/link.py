"""The gateway's connection to its agent: JSON lines over a Unix socket, dialled again for as long as the process lives.

A gateway that starts while the agent is away serves from the files that the agent left.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.gateway.elsewhere import read as read_directory
from agent.gateway.elsewhere import read_members
from agent.gateway.server import Gateway
from agent.gateway.table import TableError, read

log = logging.getLogger(__name__)
REDIAL_SECONDS = 0.1
LINE_LIMIT = 256 * 1024 * 1024
_BAD = (TableError, KeyError, TypeError, ValueError)


def load_saved(gateway: Gateway, state_dir: Path) -> None:
    """The table and keys that the agent saved last; what cannot be read is said and left out."""
    for name in ("table.json", "keys.json", "directory.json"):
        path = state_dir / "gateway" / name
        try:
            take(gateway, json.loads(path.read_bytes()))
        except FileNotFoundError:
            log.info("nothing saved by the agent yet file=%s", path)
        except (OSError, *_BAD) as err:
            log.error("saved state cannot be used file=%s error=%s", path, err)


def take(gateway: Gateway, message: Mapping[str, Any]) -> None:
    """One message of the agent. Raises TableError, KeyError, TypeError or ValueError where it cannot be used."""
    kind = message["type"]
    if kind == "table":
        table = read(message)
        gateway.clock.set(message.get("clock"))
        gateway.table = table
        gateway.running.take(table)
    elif kind == "clock":
        gateway.clock.set(message)
    elif kind == "keys":
        gateway.keys.replace(message["keys"])
        gateway.running.cut_dead(gateway.keys, gateway.clock.now_ms())
    elif kind == "close":
        channel = str(message["channel"])
        gateway.table.close(channel)
        gateway.tell(
            {
                "type": "closed",
                "channel": channel,
                "barrier": message["barrier"],
                "in_flight": gateway.running.in_flight.get(channel, 0),
            }
        )
    elif kind == "cut":
        gateway.running.cut(str(message["channel"]), int(message["retry_after"]))
    elif kind == "others":
        gateway.running.limits.others(message["callers"], int(message["gateways"]))
        gateway.running.elsewhere = {str(c): int(n) for c, n in message["channels"].items()}
    elif kind == "directory":
        gateway.directory = read_directory(message, gateway.node)
        gateway.members = read_members(message)
    elif kind == "figures":
        gateway.metrics.of_agent = str(message["text"])
    elif kind == "usage_taken":
        gateway.usage.taken([str(i) for i in message["ids"]])
    else:
        log.warning("unknown message from the agent type=%s", kind)


async def keep_linked(gateway: Gateway, path: Path) -> None:
    """Dials the agent's socket, takes what it says, and dials again; ends only when cancelled."""
    said = False
    while True:
        try:
            reader, writer = await asyncio.open_unix_connection(str(path), limit=LINE_LIMIT)
        except OSError as err:
            if not said:
                log.warning("agent not reached, serving from what is known socket=%s error=%s", path, err)
            said = True
            gateway.agent_tried.set()
            await asyncio.sleep(REDIAL_SECONDS)
            continue
        said = False
        log.info("agent connected socket=%s", path)
        try:
            await _talk(gateway, reader, writer)
        except (OSError, ValueError) as err:
            log.warning("agent connection broke error=%s", err)
        finally:
            gateway.disconnected()
            writer.close()
        await asyncio.sleep(REDIAL_SECONDS)


async def _talk(gateway: Gateway, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    def send(message: dict[str, Any]) -> None:
        if not writer.is_closing():
            writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    gateway.connected(send)
    while line := await reader.readline():
        try:
            take(gateway, json.loads(line))
        except _BAD as err:
            log.error("message from the agent cannot be used error=%s", err)
        gateway.agent_tried.set()
