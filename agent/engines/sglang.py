"""SGLang: `sglang serve --model-path …`, argparse with abbreviations; its key goes by argument, it has no Unix socket."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agent import sglang_options
from agent.engines import prefixed
from agent.engines.base import Ended, Place, Prepared, Verdict
from agent.engines.environment import OFFLINE, engine_environment
from agent.engines.failures_torch import classify_sglang

# /health would otherwise generate a token, and wait behind other work for up to 20 s; the agent looks every second.
CHEAP_HEALTH = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}
_KEY = "SlotServe gives the engine a new key at every start"
_ADDRESS = "SlotServe sets the address, so that calls go through the gateway"
_TLS = "the gateway ends TLS; the engine is reached on this machine only"
_COUNTS, _SAME = prefixed.table(
    (sglang_options.NO_VALUE, 0),
    # Not the parser's: `sglang serve` looks for these before it, to hand over to another program.
    (f"{sglang_options.ONE_VALUE} --model-type --pipeline --pipeline-class-name", 1),
    (sglang_options.OPTIONAL_VALUE, "?"),
    (sglang_options.MANY_VALUES, "+"),
    (sglang_options.ANY_VALUES, "*"),
    negatable=sglang_options.NEGATABLE,
)
OWNED: Mapping[str, str] = {
    **dict.fromkeys(("--model-path", "--model-type"), "SlotServe chooses the model"),
    **dict.fromkeys(("--pipeline", "--pipeline-class-name"), "it would hand over to a program for other models"),
    "--served-model-name": "SlotServe names the model",
    **dict.fromkeys(("--host", "--fastapi-root-path"), _ADDRESS),
    **dict.fromkeys(
        (
            *("--port", "--nccl-port", "--grpc-port", "--smg-http-sidecar-port", "--dist-init-addr"),
            *("--gated-launch-port", "--engine-info-bootstrap-port"),
        ),
        "SlotServe chooses free ports at every start",
    ),
    **dict.fromkeys(("--api-key", "--admin-api-key"), _KEY),
    **dict.fromkeys(("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-keyfile-password"), _TLS),
    "--enable-ssl-refresh": _TLS,
    **dict.fromkeys(("--grpc-mode", "--smg-grpc-mode", "--encoder-only", "--use-ray"), "calls would no longer arrive"),
    **dict.fromkeys(("--sidecar", "--sidecar-args"), "it would start another program beside the engine"),
    "--enable-http-worker-reuseport": "the engine's port is its own; sharing it would mix two engines",
    **dict.fromkeys(("--nnodes", "--node-rank"), "a channel runs one process on its own GPUs"),
    **dict.fromkeys(("--base-gpu-id", "--gpu-id-step"), "the channel's GPUs are set by SlotServe"),
    "--config": "its options would count without being seen here; put them into the preset",
    "--help": "the engine would print something and end instead of serving",
}
# An administrator may use these: they load code, read, write or delete files, or talk to others.
PERMISSIONED = frozenset(
    (
        *("--trust-remote-code", "--custom-weight-loader", "--enable-custom-logit-processor", "--forward-hooks"),
        *("--tool-server", "--download-dir", "--file-storage-path", "--delete-ckpt-after-loading"),
        *("--crash-dump-folder", "--export-metrics-to-file-dir", "--spec-trace-dir", "--log-requests-target"),
        *("--debug-tensor-dump-output-folder", "--debug-tensor-dump-input-file", "--msprobe-dump-config"),
        *("--modelopt-checkpoint-restore-path", "--modelopt-checkpoint-save-path", "--modelopt-export-path"),
        *("--decrypted-config-file", "--decrypted-draft-config-file", "--lmcache-config-file", "--flexkv-config-file"),
        *("--weight-cache-socket", "--kv-events-config", "--load-publish-endpoint", "--otlp-traces-endpoint"),
        *("--hicache-storage-backend-extra-config", "--decoupled-spec-bind-endpoint"),
        "--decoupled-spec-connect-endpoints",
    )
)
OPTIONS = prefixed.Options(
    counts=_COUNTS,
    same=_SAME,
    owned=OWNED,
    permissioned=PERMISSIONED,
    secret=frozenset(("--api-key", "--admin-api-key", "--ssl-keyfile-password")),
    telling={
        "--hicache-storage-backend": re.compile(r"dynamic"),
        "--unified-cache-external-linker-backend": re.compile(r"dynamic"),
    },
)


class Sglang:
    """The engine "sglang". Stateless."""

    name = "sglang"
    formats = frozenset({"safetensors"})
    unix_socket = False
    beside = (13, *range(233, 233 + 16))  # with attention spread over ranks
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
        """See base.Engine. One served name only; which start answers is known by its key, which may begin with `-`."""
        preset = prefixed.sort_out(OPTIONS, args)
        made, env_dropped, env_permissioned = engine_environment(env, inherited, node_env, place, torch=True)
        serve = () if program and program[-1] in ("serve", "sglang.launch_server") else ("serve",)
        names = tuple(f"--served-model-name={name}" for name in self.served_names(place))
        ours = (*names, "--host", place.host, "--port", str(place.port), f"--api-key={place.engine_key}")
        return Prepared(
            command=(*program, *serve, "--model-path", place.model_path, *preset.kept, *ours),
            env={**OFFLINE, **made, **CHEAP_HEALTH},
            dropped=(*preset.dropped, *env_dropped),
            unknown=preset.unknown,
            needs_permission=tuple(dict.fromkeys((*preset.permissioned, *env_permissioned))),
            kept=preset.kept,
        )

    def served_names(self, place: Place) -> tuple[str, ...]:
        """The names as the engine will show them: the catalogue name alone, and no `:` in it (it would part a model from
        its adapter)."""
        return tuple(prefixed.served(name.replace(":", "_")) for name in place.served_names[:1])

    def check_command(self, prepared: Prepared) -> tuple[str, ...] | None:
        """SGLang has no quick way to look at arguments alone."""
        return None

    def suggest(self, flag: str) -> str | None:
        return prefixed.suggest(OPTIONS, flag)

    def classify(self, output: str, ended: Ended, args: Sequence[str]) -> Verdict:
        """See base.Engine. It ends with SIGKILL when any part of it fails: the log decides, not the exit status."""
        return classify_sglang(output, ended, prefixed.values(OPTIONS, args))
