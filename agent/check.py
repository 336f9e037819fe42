"""What `slotserve-agent check-config` looks at: what a node's file says, against this machine."""

from __future__ import annotations

import os
import shutil
import socket

from agent.gateway.tls import Tls, TlsError
from agent.settings import AgentSettings, NodeFile

SOCKET_PATH_BYTES = 107


def problems(file: NodeFile, settings: AgentSettings) -> list[str]:
    """A sentence each, naming the field; empty = fine."""
    where = str(settings.node_file)
    found = []
    if not file.channels:
        found.append(f"{where}: channels: none is declared, so this node serves nothing")
    for name, engine in file.engines.items():
        program = engine.command[0]
        if not shutil.which(program):
            found.append(f"{where}: engines.{name}.command: {program!r} is not a program here")
    for channel in file.channels:
        at = f"{where}: channel {channel.name!r}"
        found += [
            f"{at}: engines: {name!r} has no [engines.{name!r}] section with its command"
            for name in channel.engines
            if name not in file.engines
        ]
        for folder in channel.model_folders:
            if not folder.is_dir():
                found.append(f"{at}: model_folders: {folder} is not a folder")
            elif not os.access(folder, os.R_OK | os.X_OK):
                found.append(f"{at}: model_folders: {folder} cannot be read by this user")
        path = settings.run_dir.absolute() / f"{channel.name}.sock"
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
            found.append(f"SLOTSERVE_AGENT_RUN_DIR: {path} is too long for a Unix socket; choose a shorter folder")
    for listen in file.gateway.listen:
        if problem := _listen_problem(listen):
            found.append(f"{where}: gateway.listen: {listen!r}: {problem}")
    if file.gateway.tls is not None:
        try:
            Tls(*file.gateway.tls)
        except TlsError as err:
            found.append(f"{where}: {err}")
    return found + _gpu_problems(file, where)


def _listen_problem(listen: str) -> str:
    if listen.startswith("unix:"):
        return "" if listen[5:].startswith("/") else "write unix:/absolute/path"
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        return "write host:port, [v6]:port or unix:/path"
    try:
        socket.getaddrinfo(host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as err:
        return str(err)
    return ""


def _gpu_problems(file: NodeFile, where: str) -> list[str]:
    from agent.runtime.gpu import Gpus

    gpus = Gpus()
    missing = ((c.name, gpus.missing(c.gpus)) for c in file.channels)
    return [f"{where}: channel {name!r}: gpus: {why}" for name, why in missing if why]
