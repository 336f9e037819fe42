"""vLLM: `vllm serve MODEL …`, argparse with abbreviations, `_` as `-`, and options that take several values.

Two habits of its parser decide how its line is made: any token that is exactly `--model` moves another model to the
front, and `--key.part value` is put behind everything else, so even ours would come before it.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agent import vllm_options
from agent.engines import prefixed
from agent.engines.base import Ended, Place, Prepared, Verdict
from agent.engines.environment import OFFLINE, engine_environment
from agent.engines.failures_torch import classify_vllm

_KEY = "SlotServe gives the engine a new key at every start"
_ADDRESS = "SlotServe sets the address, so that calls go through the gateway"
_TLS = "the gateway ends TLS; the engine is reached through a private socket only"
_SPREAD = "a channel runs one process on its own GPUs; this would spread it or move its ports"
_COUNTS, _SAME = prefixed.table(
    (f"{vllm_options.NO_VALUE} --omni", 0),  # --omni: not the parser's, looked for before it
    (vllm_options.ONE_VALUE, 1),
    (vllm_options.OPTIONAL_VALUE, "?"),
    (vllm_options.MANY_VALUES, "+"),
    (vllm_options.ANY_VALUES, "*"),
    negatable=vllm_options.NEGATABLE,
)
# vLLM's processes talk over sockets in the temporary folder, with names of 36 characters; a path has at most 107 bytes.
LONGEST_TMPDIR = 107 - 1 - 36
OWNED: Mapping[str, str] = {
    "--model": "SlotServe chooses the model",
    "--hf-token": "SlotServe serves the model on the disk; engines fetch nothing",
    "--served-model-name": "SlotServe names the model",
    **dict.fromkeys(("--host", "--uds", "--root-path"), _ADDRESS),
    "--port": "SlotServe chooses a free port at every start",
    "--api-key": _KEY,
    **dict.fromkeys(("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs", "--ssl-ciphers"), _TLS),
    "--enable-ssl-refresh": _TLS,
    **dict.fromkeys(("--grpc", "--grpc-port", "--headless", "--omni"), "calls would no longer arrive"),
    **dict.fromkeys(("--api-server-count", "--master-addr", "--master-port", "--nnodes", "--node-rank"), _SPREAD),
    "--device-ids": "the channel's GPUs are set by SlotServe",
    "--config": "its options would count without being seen here; put them into the preset",
    "--middleware": "it would put other code between the gateway and the model",
    "--help": "the engine would print something and end instead of serving",
}
# An administrator may use these: they load code, read or write files, or talk to others.
PERMISSIONED = frozenset(
    (
        *("--trust-remote-code", "--logits-processors", "--worker-cls", "--worker-extension-cls", "--scheduler-cls"),
        *("--tool-parser-plugin", "--reasoning-parser-plugin", "--io-processor-plugin", "--tool-server"),
        *("--allowed-local-media-path", "--log-config-file", "--logging-config", "--download-dir", "--profiler-config"),
        *("--kv-transfer-config", "--ec-transfer-config", "--ec-manager-config", "--weight-transfer-config"),
        *(
            "--kv-events-config",
            "--otlp-traces-endpoint",
            "--model-class-overrides",
            "--mm-encoder-fp8-scale-save-path",
        ),
    )
)
OPTIONS = prefixed.Options(
    counts=_COUNTS,
    same=_SAME,
    owned=OWNED,
    permissioned=PERMISSIONED,
    families=(("--data-parallel", _SPREAD), ("--no-data-parallel", _SPREAD), ("-dp", _SPREAD)),
    secret=frozenset(("--api-key", "--hf-token")),
    telling={
        "--compilation-config": re.compile(r"\bbackend\b|custom|_path\b|_dir\b"),
        "--speculative-config": re.compile(r"custom_class"),
        "--spec-method": re.compile(r"custom_class"),
        "--distributed-executor-backend": re.compile(r"[.:]"),  # the name of a class
    },
    glued={"-O": "--optimization-level"},
    underscores=True,
    dotted=True,
)


class Vllm:
    """The engine "vllm". Stateless."""

    name = "vllm"
    formats = frozenset({"safetensors"})
    unix_socket = True
    beside: tuple[int, ...] = ()
    system_config_files: tuple[str, ...] = ()

    def prepare(
        self,
        program: Sequence[str],
        args: Sequence[str],
        env: Mapping[str, str],
        place: Place,
        inherited: Mapping[str, str],
        node_env: Mapping[str, str] = MappingProxyType({}),
    ) -> Prepared:
        """See base.Engine."""
        preset = prefixed.sort_out(OPTIONS, args)
        made, env_dropped, env_permissioned = engine_environment(env, inherited, node_env, place, torch=True)
        if place.socket and len(place.tmpdir.encode()) > LONGEST_TMPDIR:
            made.setdefault("VLLM_RPC_BASE_PATH", os.path.dirname(place.socket))
        made = {**OFFLINE, **made, "VLLM_API_KEY": place.engine_key}
        serve = () if tuple(program)[-1:] == ("serve",) else ("serve",)
        where = ("--uds", place.socket) if place.socket else ("--host", place.host, "--port", str(place.port))
        return Prepared(
            command=(*program, *serve, place.model_path, *preset.kept, *self._names(place), *where),
            env=made,
            dropped=(*preset.dropped, *env_dropped),
            unknown=preset.unknown,
            needs_permission=tuple(dict.fromkeys((*preset.permissioned, *env_permissioned))),
            kept=preset.kept,
        )

    def served_names(self, place: Place) -> tuple[str, ...]:
        """The names as the engine will show them: the catalogue name alone where one begins with `-`."""
        names = tuple(prefixed.served(name) for name in place.served_names)
        return names[:1] if any(name.startswith("-") for name in names) else names

    def _names(self, place: Place) -> tuple[str, ...]:
        """Several values cannot stand behind `=`, and without it one that begins with `-` would be an option. With one
        name the start is known by its key, as SGLang's is."""
        names = self.served_names(place)
        if len(names) == 1:
            return (f"--served-model-name={names[0]}",)
        return ("--served-model-name", *names) if names else ()

    def check_command(self, prepared: Prepared) -> tuple[str, ...] | None:
        """vLLM has no quick way to look at arguments alone: importing it takes longer than most starts are worth."""
        return None

    def suggest(self, flag: str) -> str | None:
        return prefixed.suggest(OPTIONS, flag)

    def classify(self, output: str, ended: Ended, args: Sequence[str]) -> Verdict:
        """See base.Engine."""
        return classify_vllm(output, ended, prefixed.values(OPTIONS, args))
