"""vLLM: `vllm serve MODEL …`, argparse with abbreviations, `_` as `-`, and options that take several values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agent.engines import prefixed
from agent.engines.base import Ended, Place, Prepared, Verdict
from agent.engines.environment import engine_environment
from agent.engines.failures_torch import classify_vllm

_KEY = "SlotServe gives the engine a new key at every start"
_ADDRESS = "SlotServe sets the address, so that calls go through the gateway"
_TLS = "the gateway ends TLS; the engine is reached through a private socket only"
_SPREAD = "a channel runs one process on its own GPUs; this would spread it or move its ports"
_COUNTS, _SAME = prefixed.table(
    no_value="""
    --grpc --headless --omni --trust-remote-code --enforce-eager --enable-prefix-caching --no-enable-prefix-caching
    --enable-chunked-prefill --no-enable-chunked-prefill --enable-lora --enable-sleep-mode --enable-auto-tool-choice
    --disable-log-stats --disable-uvicorn-access-log --enable-log-requests --no-enable-log-requests
    --disable-log-requests --disable-fastapi-docs --enable-expert-parallel|-ep --disable-custom-all-reduce
    --calculate-kv-scales --skip-tokenizer-init --disable-sliding-window --async-scheduling --no-async-scheduling
    --enable-reasoning --return-tokens-as-token-ids --enable-server-load-tracking --enable-force-include-usage
    --enable-prompt-tokens-details --enable-request-id-headers --allow-credentials --enable-dbo --enable-eplb
    --language-model-only --enable-tower-connector-lora --fully-sharded-loras --enable-prompt-embeds
    """,
    one_value="""
    --model --host --port --uds --root-path --ssl-keyfile --ssl-certfile --ssl-ca-certs --ssl-cert-reqs --ssl-ciphers
    --grpc-port --api-server-count|-asc --config --master-addr --master-port --nnodes|-n --node-rank|-r
    --device-ids --device --middleware --tokenizer --tokenizer-mode --tokenizer-revision --dtype --seed --revision
    --code-revision --hf-config-path --hf-overrides --hf-token --max-model-len --quantization|-q --load-format
    --download-dir --gpu-memory-utilization|--device-memory-utilization --kv-cache-memory-bytes --kv-cache-dtype
    --block-size --swap-space --cpu-offload-gb --num-gpu-blocks-override --max-num-seqs --max-num-batched-tokens
    --max-num-partial-prefills --max-num-queued-reqs --tensor-parallel-size|-tp --pipeline-parallel-size|-pp
    --max-parallel-loading-workers --distributed-executor-backend --worker-cls --worker-extension-cls --scheduler-cls
    --max-loras --max-lora-rank --max-cpu-loras --lora-dtype --chat-template --chat-template-content-format
    --response-role --tool-call-parser --tool-parser-plugin --reasoning-parser --reasoning-parser-plugin --tool-server
    --io-processor-plugin --limit-mm-per-prompt --mm-processor-kwargs --mm-processor-cache-gb --allowed-local-media-path
    --speculative-config --compilation-config --optimization-level|-O --kv-transfer-config --generation-config
    --override-generation-config --guided-decoding-backend --structured-outputs-config --attention-backend
    --attention-config --uvicorn-log-level --log-config-file --max-log-len --shutdown-timeout
    --disable-access-log-for-endpoints --sse-keep-alive-interval --scheduling-policy --max-logprobs --logprobs-mode
    --runner --convert --model-impl --override-pooler-config --pooler-config --additional-config --prefix-caching-hash-algo
    --safetensors-load-strategy --model-loader-extra-config --ignore-patterns --max-seq-len-to-capture --task
    --data-parallel-size|-dp
    """,
    many_values="""
    --served-model-name --api-key --lora-modules --cudagraph-capture-sizes --logits-processors --allowed-origins
    --allowed-methods --allowed-headers --prompt-adapters
    """,
)
OPTIONS = prefixed.Options(
    counts=_COUNTS,
    same=_SAME,
    underscores=True,
    dotted=True,
    owned={
        "--model": "SlotServe chooses the model",
        "--hf-token": "SlotServe serves the model on the disk; engines fetch nothing",
        "--served-model-name": "SlotServe names the model",
        **dict.fromkeys(("--host", "--uds", "--root-path"), _ADDRESS),
        "--port": "SlotServe chooses a free port at every start",
        "--api-key": _KEY,
        **dict.fromkeys(
            ("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs", "--ssl-ciphers"), _TLS
        ),
        **dict.fromkeys(("--grpc", "--grpc-port", "--headless", "--omni"), "calls would no longer arrive"),
        **dict.fromkeys(("--api-server-count", "--master-addr", "--master-port", "--nnodes", "--node-rank"), _SPREAD),
        "--device-ids": "the channel's GPUs are set by SlotServe",
        "--config": "its options would count without being seen here; put them into the preset",
        "--middleware": "it would put other code between the gateway and the model",
    },
    families=(("--data-parallel", _SPREAD), ("-dp", _SPREAD)),
    permissioned=frozenset(
        (
            *(
                "--trust-remote-code",
                "--logits-processors",
                "--worker-cls",
                "--worker-extension-cls",
                "--scheduler-cls",
            ),
            *("--tool-parser-plugin", "--reasoning-parser-plugin", "--io-processor-plugin", "--tool-server"),
            *("--allowed-local-media-path", "--log-config-file", "--download-dir"),
        )
    ),
)


class Vllm:
    """The engine "vllm". Stateless."""

    name = "vllm"
    formats = frozenset({"safetensors"})
    unix_socket = True
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
        made, env_dropped, env_permissioned = engine_environment(env, inherited, node_env, place)
        made["VLLM_API_KEY"] = place.engine_key
        serve = () if tuple(program)[-1:] == ("serve",) else ("serve",)
        where = ("--uds", place.socket) if place.socket else ("--host", place.host, "--port", str(place.port))
        names = ("--served-model-name", *place.served_names) if place.served_names else ()
        return Prepared(
            command=(*program, *serve, place.model_path, *preset.kept, *names, *where),
            env=made,
            dropped=(*preset.dropped, *env_dropped),
            unknown=preset.unknown,
            needs_permission=tuple(dict.fromkeys((*preset.permissioned, *env_permissioned))),
            kept=preset.kept,
        )

    def served_names(self, place: Place) -> tuple[str, ...]:
        """The names as the engine will show them."""
        return place.served_names

    def check_command(self, prepared: Prepared) -> tuple[str, ...] | None:
        """vLLM has no quick way to look at arguments alone: importing it takes longer than most starts are worth."""
        return None

    def suggest(self, flag: str) -> str | None:
        return prefixed.suggest(OPTIONS, flag)

    def classify(self, output: str, ended: Ended, args: Sequence[str]) -> Verdict:
        """See base.Engine."""
        return classify_vllm(output, ended, prefixed.values(OPTIONS, args))
