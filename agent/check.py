"""What `slotserve-agent check-config` looks at: what a node's file says, against this machine."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from agent.engines import ENGINES
from agent.gateway.tls import Tls, TlsError
from agent.runtime.disks import rotates
from agent.runtime.preflight import engine_config
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
        if name not in ENGINES:
            found.append(f"{where}: engines.{name}: {_unknown(name)}")
        if not shutil.which(program, path=engine.env.get("PATH")):
            found.append(f"{where}: engines.{name}.command: {program!r} is not a program here")
    for channel in file.channels:
        at = f"{where}: channel {channel.name!r}"
        found += [
            f"{at}: engines: {name!r} has no [engines.{name!r}] section with its command"
            if name in ENGINES
            else f"{at}: engines: {_unknown(name)}"
            for name in channel.engines
            if engine_config(name, file.engines) is None
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
    if (relay := file.gateway.relay_listen) and (problem := _relay_problem(relay, file.gateway.relay_address)):
        found.append(f"{where}: gateway.{problem}")
    if file.gateway.tls is not None:
        try:
            Tls(*file.gateway.tls)
        except TlsError as err:
            found.append(f"{where}: {err}")
    return found + _gpu_problems(file, where)


def notes(file: NodeFile) -> list[str]:
    """What is allowed, and worth knowing; a sentence each."""
    found = []
    used = {name for channel in file.channels for name in channel.engines}
    if "sglang" in used:
        found.append(
            "sglang takes its key from its command line only and listens on a port of this machine: whoever may list "
            "processes here can call it past the gateway; llama.cpp and vllm get theirs by the environment, on a socket "
            "of the agent's user"
        )
    for name in sorted(used & ENGINES.keys()):
        found += [
            f"{path} is read by {name} before every preset's arguments: what stands there acts on every model here"
            for path in ENGINES[name].system_config_files
            if Path(path).exists()
        ]
    found += [f"engines.{name}: no channel uses it" for name in file.engines if name not in used]
    for channel in file.channels:
        if not channel.model_folders:
            found.append(f"channel {channel.name!r}: model_folders: none, so there is nothing to load")
        found += [
            f"{folder} lies on a rotating disk: models load slowly from there; move them to an SSD"
            for folder in channel.model_folders
            if folder.is_dir() and rotates(folder.stat().st_dev)
        ]
    if without := [repr(channel.name) for channel in file.channels if not channel.gpus]:
        found.append(
            f"channel {', '.join(without)}: gpus: none, so NVIDIA cards are hidden from its engines; it runs on the "
            "processor, or on what its env names (AMD: HIP_VISIBLE_DEVICES, Vulkan: GGML_VK_VISIBLE_DEVICES)"
        )
    return list(dict.fromkeys(found))


def _unknown(name: str) -> str:
    return f"{name!r} is not an engine that SlotServe can start; there are {', '.join(ENGINES)}"


def _relay_problem(listen: str, address: str | None) -> str:
    problem = "relays come over the network: write host:port" if listen.startswith("unix:") else _listen_problem(listen)
    if problem:
        return f"relay_listen: {listen!r}: {problem}"
    if address is not None and (not address.rpartition(":")[0] or not address.rpartition(":")[2].isdigit()):
        return f"relay_address: {address!r}: write host:port, as other nodes reach this one"
    return ""


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
