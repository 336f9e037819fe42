"""A node's own settings: environment variables and the node's file (TOML, written by the roll-out).

node = "gpu-a01"
[gateway]
listen = ["127.0.0.1:8710"]          # host:port, [v6]:port or unix:/path
url = "http://gpu-a01:8710"          # what people call; default: from the first listen address
tls_certificate = "/etc/…/gpu.pem"   # with tls_key: TLS at every host:port (unix: is without); read again when they change
tls_key = "/etc/…/gpu.key"
relay_listen = "0.0.0.0:8712"        # takes requests from other nodes' gateways here (mutual TLS, nodes' certificates only)
relay_address = "gpu-a01:8712"       # what they dial; default: from relay_listen
[engines."llama.cpp"]
command = ["/usr/bin/llama-server"]
env = { LD_LIBRARY_PATH = "/opt/llama" }
[[channels]]
name = "main"
gpus = ["GPU-3f5b…"]                 # UUIDs or indices; empty: no GPU
model_folders = ["/srv/models"]
engines = ["llama.cpp", "vllm"]      # in order of preference
env = { HIP_VISIBLE_DEVICES = "1" }  # for whatever engine runs here, over the engine's own env
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

ORIGIN = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")


class NodeFileError(ValueError):
    """The node's file cannot be used; the message names the field and what is wrong with it."""


class EngineConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")
    command: list[str] = Field(min_length=1)
    env: dict[str, str] = {}


class ChannelConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    gpus: list[str | int] = []
    model_folders: list[Path] = []
    engines: list[str] = Field(min_length=1)
    env: dict[str, str] = {}

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError(
                "lower-case letters, digits, '.', '_', '-'; at most 63, not beginning or ending with a sign"
            )
        return value


class GatewayConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")
    listen: list[str] = ["127.0.0.1:8710"]
    socket_mode: str = Field(default="0660", pattern="^0?[0-7]{3}$")  # of the files of unix: addresses
    url: str | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    relay_listen: str | None = None
    relay_address: str | None = None

    @model_validator(mode="after")
    def _both(self) -> GatewayConfig:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together")
        return self

    @property
    def tls(self) -> tuple[Path, Path] | None:
        return (self.tls_certificate, self.tls_key) if self.tls_certificate and self.tls_key else None


class NodeFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    node: str
    gateway: GatewayConfig = GatewayConfig()
    engines: dict[str, EngineConfig] = {}
    channels: list[ChannelConfig] = []

    @field_validator("node")
    @classmethod
    def _node(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError(
                "lower-case letters, digits, '.', '_', '-'; at most 63, not beginning or ending with a sign"
            )
        return value

    @field_validator("channels")
    @classmethod
    def _channels(cls, value: list[ChannelConfig]) -> list[ChannelConfig]:
        names = [c.name for c in value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"channel {name!r} is declared twice")
        seen: dict[str | int, str] = {}
        for channel in value:
            for gpu in channel.gpus:
                if gpu in seen:
                    raise ValueError(f"GPU {gpu} is in channel {seen[gpu]!r} and in {channel.name!r}")
                seen[gpu] = channel.name
        return value


class AgentSettings(BaseSettings):
    """Environment variables of a node. Those that are None are taken from the controller."""

    model_config = SettingsConfigDict(env_prefix="SLOTSERVE_", extra="ignore", hide_input_in_errors=True)
    node_file: Path = Field(Path("/etc/slotserve/node.toml"), description="The node's name, engines and channels")
    agent_state_dir: Path = Field(
        Path("/var/lib/slotserve-agent"), description="Key, plan, tables for the gateway, channels' records and logs"
    )
    agent_run_dir: Path | None = Field(
        None, description="Sockets; <state>/run where not set (a Unix socket's path has at most 107 bytes)"
    )
    log_level: str = Field("info", description="Least severe line that is logged")
    log_format: str = Field("text", description="`json` for machines; the same keys everywhere")
    stop_timeout_seconds: float | None = Field(None, ge=0, description="From SIGTERM to SIGKILL, on this node")
    drain_seconds: float | None = Field(
        None, ge=0, description="Longest wait for running requests on a switch, on this node"
    )
    load_timeout_seconds: float | None = Field(None, gt=0, description="Process start to ready, on this node")
    disk_read_mbps: float | None = Field(
        None, gt=0, description="For the first estimate of a load time on this node (MB = 10^6 bytes)"
    )
    gateway_linger_seconds: float | None = Field(
        None, ge=0, description="How long a replaced gateway goes on for its streams, on this node"
    )
    gateway_body_limit_mb: float = Field(
        64, gt=0, description="What is held back of a body at most while its `model` is looked for, in MiB"
    )
    gateway_idle_seconds: float = Field(
        3600, gt=0, description="An engine that says nothing for so long is given up on: 504, or the stream is ended"
    )
    gateway_cors_origins: str = Field(
        "", description="Origins of web pages that may call the gateway from a browser, with commas between, or `*`"
    )
    gateway_absorb_aborts: bool = Field(
        False,
        description="Lets an engine finish what a client has broken off, unheard, for engines that an abort harms; it counts "
        "as running to its end",
    )
    gateway_relay: bool = Field(
        False,
        description="Passes requests for models that are not served here on to a node that serves them and takes relays "
        "(`relay_listen` in its node file)",
    )
    gateway_workers: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that the gateway serves with; one does thousands of small requests a second",
    )
    metrics_address: str | None = Field(
        None,
        description="Where /metrics is served, to anybody: host:port; not set: at the gateway's own address, "
        "to this machine and to administrators' keys",
    )
    hung_seconds: float = Field(
        60,
        ge=10,
        description="A ready engine that answers nothing while its GPU and processors idle so long is given up",
    )
    probe_seconds: float = Field(
        600,
        ge=0,
        description="Without an answer through the gateway for so long a ready engine is asked for one token (it may cost "
        "a cached prompt); 0: never",
    )
    read_ahead: bool = Field(
        True, description="Read the next model's files into free memory while the present one serves"
    )
    engine_cache_gb: float = Field(
        20,
        ge=0,
        description="What a channel's engines may keep of compiled kernels and graphs, in GB (10^9 bytes): more is removed "
        "before the next start; 0: nothing is kept",
    )
    scan_seconds: float = Field(10.0, gt=0, description="How often the model folders are looked at")

    @field_validator("gateway_cors_origins")
    @classmethod
    def _origins(cls, value: str) -> str:
        origins(value)
        return value

    @property
    def run_dir(self) -> Path:
        return self.agent_run_dir or self.agent_state_dir / "run"


def origins(text: str) -> list[str]:
    """Origins of web pages, separated by commas or spaces; `*` is any. Raises ValueError naming what is none."""
    found = text.replace(",", " ").split()
    for origin in found:
        if origin != "*" and not ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is no origin; write https://host or https://host:port, in lower case, or *")
    return found


def read_node_file(path: Path) -> NodeFile:
    """The node's file, checked. Raises NodeFileError in words that name the field."""
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise NodeFileError(f"{path}: no such file; it declares the node's name, engines and channels") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as err:
        raise NodeFileError(f"{path}: {err}") from err
    try:
        return NodeFile.model_validate(data)
    except ValidationError as err:
        problems = "; ".join(f"{'.'.join(str(x) for x in e['loc'])}: {e['msg']}" for e in err.errors())
        raise NodeFileError(f"{path}: {problems}") from None
