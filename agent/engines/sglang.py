"""SGLang: `sglang serve --model-path …`, argparse with abbreviations; its key goes by argument, it has no Unix socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agent.engines import prefixed
from agent.engines.base import Ended, Place, Prepared, Verdict
from agent.engines.environment import engine_environment
from agent.engines.failures_torch import classify_sglang

_KEY = "SlotServe gives the engine a new key at every start"
_ADDRESS = "SlotServe sets the address, so that calls go through the gateway"
_TLS = "the gateway ends TLS; the engine is reached on this machine only"
_COUNTS, _SAME = prefixed.table(
    no_value="""
    --trust-remote-code --skip-tokenizer-init --enable-metrics --log-requests --disable-radix-cache --disable-cuda-graph
    --enable-mixed-chunk --enable-dp-attention --enable-torch-compile --enable-p2p-check --disable-overlap-schedule
    --disable-custom-all-reduce --is-embedding --show-time-cost --skip-server-warmup --enable-multimodal --enable-lora
    --enable-cache-report --sleep-on-idle --enable-memory-saver --enable-hierarchical-cache --use-ray --encoder-only
    --grpc-mode --smg-grpc-mode --enable-http-worker-reuseport --disable-fast-image-processor --enable-ep-moe
    --allow-auto-truncate --enable-deterministic-inference --enable-custom-logit-processor --enable-two-batch-overlap
    """,
    one_value="""
    --model-path|--model --host --port --api-key --admin-api-key --fastapi-root-path --served-model-name --config
    --ssl-keyfile --ssl-certfile --ssl-ca-certs --ssl-keyfile-password --model-type --tokenizer-path --tokenizer-mode
    --tokenizer-worker-num --load-format --model-loader-extra-config --dtype --quantization --quantization-param-path
    --kv-cache-dtype --context-length --device --revision --download-dir --mem-fraction-static --max-running-requests
    --max-total-tokens --max-queued-requests --chunked-prefill-size --max-prefill-tokens --schedule-policy
    --schedule-conservativeness --page-size --tp-size|--tensor-parallel-size --pp-size|--pipeline-parallel-size
    --dp-size|--data-parallel-size --ep-size|--ep|--expert-parallel-size --base-gpu-id --gpu-id-step
    --dist-init-addr|--nccl-init-addr --nccl-port --grpc-port --smg-http-sidecar-port|--grpc-http-sidecar-port --nnodes
    --node-rank --random-seed --stream-interval --watchdog-timeout --dist-timeout --log-level --log-level-http
    --log-requests-level --decode-log-interval --reasoning-parser --tool-call-parser --tool-server --chat-template
    --completion-template --json-model-override-args --attention-backend --prefill-attention-backend
    --decode-attention-backend --sampling-backend --grammar-backend --speculative-algorithm
    --speculative-draft-model-path --speculative-num-steps --speculative-eagle-topk --speculative-num-draft-tokens
    --cuda-graph-max-bs --max-loras-per-batch --max-lora-rank --lora-backend --preferred-sampling-params
    --file-storage-path --custom-weight-loader --enable-weights-from --bucket-e2e-request-latency
    """,
    many_values="--lora-paths --cuda-graph-bs --lora-target-modules --bucket-time-to-first-token",
)
OPTIONS = prefixed.Options(
    counts=_COUNTS,
    same=_SAME,
    owned={
        **dict.fromkeys(("--model-path", "--model-type"), "SlotServe chooses the model"),
        "--served-model-name": "SlotServe names the model",
        **dict.fromkeys(("--host", "--fastapi-root-path"), _ADDRESS),
        **dict.fromkeys(
            ("--port", "--nccl-port", "--grpc-port", "--smg-http-sidecar-port", "--dist-init-addr"),
            "SlotServe chooses free ports at every start",
        ),
        **dict.fromkeys(("--api-key", "--admin-api-key"), _KEY),
        **dict.fromkeys(("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-keyfile-password"), _TLS),
        **dict.fromkeys(
            ("--grpc-mode", "--smg-grpc-mode", "--encoder-only", "--use-ray"), "calls would no longer arrive"
        ),
        "--enable-http-worker-reuseport": "the engine's port is its own; sharing it would mix two engines",
        **dict.fromkeys(("--nnodes", "--node-rank"), "a channel runs one process on its own GPUs"),
        **dict.fromkeys(("--base-gpu-id", "--gpu-id-step"), "the channel's GPUs are set by SlotServe"),
        "--config": "its options would count without being seen here; put them into the preset",
    },
    permissioned=frozenset(
        (
            *("--trust-remote-code", "--download-dir", "--file-storage-path", "--custom-weight-loader"),
            *("--enable-custom-logit-processor", "--tool-server"),
        )
    ),
)


class Sglang:
    """The engine "sglang". Stateless."""

    name = "sglang"
    formats = frozenset({"safetensors"})
    unix_socket = False
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
        """See base.Engine. One served name only; which start answers is known by its key."""
        preset = prefixed.sort_out(OPTIONS, args)
        made, env_dropped, env_permissioned = engine_environment(env, inherited, node_env, place)
        serve = () if program and program[-1] in ("serve", "sglang.launch_server") else ("serve",)
        names = ("--served-model-name", place.served_names[0]) if place.served_names else ()
        ours = (*names, "--host", place.host, "--port", str(place.port), "--api-key", place.engine_key)
        return Prepared(
            command=(*program, *serve, "--model-path", place.model_path, *preset.kept, *ours),
            env=made,
            dropped=(*preset.dropped, *env_dropped),
            unknown=preset.unknown,
            needs_permission=tuple(dict.fromkeys((*preset.permissioned, *env_permissioned))),
            kept=preset.kept,
        )

    def served_names(self, place: Place) -> tuple[str, ...]:
        """The names as the engine will show them: the catalogue name alone."""
        return place.served_names[:1]

    def check_command(self, prepared: Prepared) -> tuple[str, ...] | None:
        """SGLang has no quick way to look at arguments alone."""
        return None

    def suggest(self, flag: str) -> str | None:
        return prefixed.suggest(OPTIONS, flag)

    def classify(self, output: str, ended: Ended, args: Sequence[str]) -> Verdict:
        """See base.Engine. It ends with SIGKILL when any part of it fails: the log decides, not the exit status."""
        return classify_sglang(output, ended, prefixed.values(OPTIONS, args))
