"""llama-server's options, as data: every spelling and how many values it takes.

From `llama-server --help` of the pinned build (version 0.1.0-dev, commit 7e4c0a9); a test compares the two. One option's
spellings stand together, options are parted by `|` or a line's end. An option missing here is "unknown": it stays on
the command line, and the engine says what it thinks of it.
"""

from __future__ import annotations

NO_VALUE = """
-h --help --usage | --version | -cl --cache-list | --completion-bash | --swa-full | --perf --no-perf
-e --escape --no-escape | -kvo --kv-offload -nkvo --no-kv-offload | --repack -nr --no-repack | --no-host
--mlock | --mmap --no-mmap | -dio --direct-io -ndio --no-direct-io | --list-devices | -cmoe --cpu-moe
--check-tensors | --op-offload --no-op-offload | --log-disable | -v --verbose --log-verbose | --offline
--log-prefix --no-log-prefix | --log-timestamps --no-log-timestamps | --ignore-eos | -bs --backend-sampling
--spec-draft-cpu-moe -cmoed --cpu-moe-draft | --spec-draft-backend-sampling --no-spec-draft-backend-sampling
-kvu --kv-unified -no-kvu --no-kv-unified | --cache-idle-slots --no-cache-idle-slots
--context-shift --no-context-shift | -sp --special | --warmup --no-warmup | --spm-infill
-cb --cont-batching -nocb --no-cont-batching | --mmproj-auto --no-mmproj --no-mmproj-auto
--mmproj-offload --no-mmproj-offload | --reuse-port | --cors-credentials --no-cors-credentials
--ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy | -ag --agent -no-ag --no-agent
--ui --webui --no-ui --no-webui | --embedding --embeddings | --rerank --reranking
--cache-prompt --no-cache-prompt | --metrics | --props | --slots --no-slots
--models-autoload --no-models-autoload | --jinja --no-jinja | --reasoning-preserve --no-reasoning-preserve
--skip-chat-parsing --no-skip-chat-parsing | --prefill-assistant --no-prefill-assistant
--lora-init-without-apply | --embd-gemma-default | --fim-qwen-1.5b-default | --fim-qwen-3b-default
--fim-qwen-7b-default | --fim-qwen-7b-spec | --fim-qwen-14b-spec | --fim-qwen-30b-default
--gpt-oss-20b-default | --gpt-oss-120b-default | --vision-gemma-4b-default | --vision-gemma-12b-default
--spec-default
"""

ONE_VALUE = """
-t --threads | -tb --threads-batch | -C --cpu-mask | -Cr --cpu-range | --cpu-strict | --prio | --poll
-Cb --cpu-mask-batch | -Crb --cpu-range-batch | --cpu-strict-batch | --prio-batch | --poll-batch | -c --ctx-size
-n --predict --n-predict | -b --batch-size | -ub --ubatch-size | --keep | -fa --flash-attn | --rope-scaling
--rope-scale | --rope-freq-base | --rope-freq-scale | --yarn-orig-ctx | --yarn-ext-factor | --yarn-attn-factor
--yarn-beta-slow | --yarn-beta-fast | -ctk --cache-type-k | -ctv --cache-type-v | -dt --defrag-thold | --rpc
-lm --load-mode | --numa | -dev --device | -ot --override-tensor | -ncmoe --n-cpu-moe
-ngl --gpu-layers --n-gpu-layers | -sm --split-mode | -ts --tensor-split | -mg --main-gpu | -fit --fit
-fitt --fit-target | -fitc --fit-ctx | --override-kv | --lora | --lora-scaled | --control-vector
--control-vector-scaled | -m --model | -mu --model-url | -dr --docker-repo | -hf -hfr --hf-repo | -hff --hf-file
-hft --hf-token | --log-file | --log-colors | -lv --verbosity --log-verbosity
--spec-draft-type-k -ctkd --cache-type-k-draft | --spec-draft-type-v -ctvd --cache-type-v-draft | --samplers
-s --seed | --sampler-seq --sampling-seq | --temp --temperature | --top-k | --top-p | --min-p
--top-nsigma --top-n-sigma | --xtc-probability | --xtc-threshold | --typical --typical-p | --repeat-last-n
--repeat-penalty | --presence-penalty | --frequency-penalty | --dry-multiplier | --dry-base
--dry-allowed-length | --dry-penalty-last-n | --dry-sequence-breaker | --adaptive-target | --adaptive-decay
--dynatemp-range | --dynatemp-exp | --mirostat | --mirostat-lr | --mirostat-ent | -l --logit-bias | --grammar
--grammar-file | -j --json-schema | -jf --json-schema-file | --spec-draft-hf -hfd -hfrd --hf-repo-draft
--spec-draft-threads -td --threads-draft | --spec-draft-threads-batch -tbd --threads-batch-draft
--spec-draft-cpu-mask -Cd --cpu-mask-draft | --spec-draft-cpu-range -Crd --cpu-range-draft
--spec-draft-cpu-strict --cpu-strict-draft | --spec-draft-prio --prio-draft | --spec-draft-poll --poll-draft
--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft | --spec-draft-cpu-strict-batch --cpu-strict-batch-draft
--spec-draft-prio-batch --prio-batch-draft | --spec-draft-poll-batch --poll-batch-draft
--spec-draft-override-tensor -otd --override-tensor-draft
--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft | --spec-draft-n-max | --spec-draft-n-min
--spec-draft-p-split --draft-p-split | --spec-draft-p-min --draft-p-min
--spec-draft-device -devd --device-draft | --spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft
--spec-draft-model -md --model-draft | --spec-type | --spec-ngram-mod-n-min | --spec-ngram-mod-n-max
--spec-ngram-mod-n-match | --spec-ngram-simple-size-n | --spec-ngram-simple-size-m
--spec-ngram-simple-min-hits | --spec-ngram-map-k-size-n | --spec-ngram-map-k-size-m
--spec-ngram-map-k-min-hits | --spec-ngram-map-k4v-size-n | --spec-ngram-map-k4v-size-m
--spec-ngram-map-k4v-min-hits | --draft --draft-n --draft-max | --draft-min --draft-n-min | --spec-ngram-size-n
--spec-ngram-size-m | --spec-ngram-min-hits | -lcs --lookup-cache-static | -lcd --lookup-cache-dynamic
-ctxcp --ctx-checkpoints --swa-checkpoints | -cms --checkpoint-min-step | -cram --cache-ram
-r --reverse-prompt | --pooling | -np --parallel | -mm --mmproj | -mmu --mmproj-url | --image-min-tokens
--image-max-tokens | --mtmd-batch-max-tokens | -a --alias | --tags | --embd-normalize | --host | --port | --path
--cors-origins | --cors-methods | --cors-headers | --api-prefix | --ui-config --webui-config
--ui-config-file --webui-config-file | --tools | --tools-runtime | --mcp-servers-config | --mcp-servers-json
--api-key | --api-key-file | --ssl-key-file | --ssl-cert-file | --chat-template-kwargs | -to --timeout
--sse-ping-interval | --threads-http | --cache-reuse | --slot-save-path | --media-path | --models-dir
--models-preset | --models-max | --reasoning-format | -rea --reasoning | --reasoning-effort | --reasoning-budget
--reasoning-budget-message | --chat-template | --chat-template-file | -sps --slot-prompt-similarity
--sleep-idle-seconds | --log-prompts-dir
"""

TWO_VALUES = """
--control-vector-layer-range
"""

# What the simulated engine knows beyond llama-server (agent/simulated_engine.py).
SIMULATED_NO_VALUE = """
--sim-crash-at-load | --sim-oom | --sim-ignore-sigterm | --sim-leave-worker | --sim-hang
"""

SIMULATED_ONE_VALUE = """
--sim-load-seconds | --sim-crash-after | --sim-exit-code | --sim-memory-mb | --sim-wrong-name | --sim-token-ms
--sim-hang-after | --sim-cuda-error-after | --sim-sick-after | --sim-tokens | --sim-first-token-ms | --sim-error-rate | --sim-status
--sim-closed-after
"""


def options(
    no_value: str = NO_VALUE, one_value: str = ONE_VALUE, two_values: str = TWO_VALUES
) -> dict[str, tuple[str, int]]:
    """A spelling -> (its option's first spelling, number of values)."""
    table: dict[str, tuple[str, int]] = {}
    for block, count in ((no_value, 0), (one_value, 1), (two_values, 2)):
        for group in block.replace("|", "\n").splitlines():
            spellings = group.split()
            table.update((spelling, (spellings[0], count)) for spelling in spellings)
    return table
