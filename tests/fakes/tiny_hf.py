"""Writes a Hugging Face model of some 300 kB that vLLM loads and that answers with nonsense in printable characters.

Standard library alone: a Llama of two layers with random weights (bfloat16), a tokenizer that knows single bytes. The
same seed gives the same files.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path

HIDDEN, INNER, LAYERS, HEADS = 64, 128, 2, 2
SPECIAL = ("<unk>", "<s>", "</s>")
CHAT = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def write_tiny_hf(folder: Path, seed: int = 0, context: int = 2048) -> Path:
    """A model folder as a download leaves one."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = [*SPECIAL, *(_letter(byte) for byte in range(256))]
    _json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(tokens),
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "head_dim": HIDDEN // HEADS,
            "max_position_embeddings": context,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": "bfloat16",
        },
    )
    _json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    special = [{"id": i, "content": t, "special": True} for i, t in enumerate(SPECIAL)]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    bytes_as_letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    _json(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "added_tokens": [{**token, **plain} for token in special],
            "normalizer": None,
            "pre_tokenizer": bytes_as_letters,
            "post_processor": None,
            "decoder": bytes_as_letters,
            "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": []},
        },
    )
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    _json(
        folder / "tokenizer_config.json",
        {**names, "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context, "chat_template": CHAT},
    )
    _write_safetensors(folder / "model.safetensors", dict(_weights(tokens, random.Random(seed))))
    return folder


Weight = tuple[tuple[int, ...], bytes]


def _weights(tokens: list[str], rng: random.Random) -> Iterator[tuple[str, Weight]]:
    def drawn(*shape: int, scale: float = 0.02) -> Weight:
        rows, width = (shape[0], shape[1]) if len(shape) > 1 else (1, shape[0])
        return shape, b"".join(_bfloat16(rng.gauss(0, scale)) for _ in range(rows * width))

    ones = ((HIDDEN,), _bfloat16(1.0) * HIDDEN)
    yield "model.embed_tokens.weight", drawn(len(tokens), HIDDEN, scale=1.0)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for part in ("q", "k", "v", "o"):
            yield f"{at}.self_attn.{part}_proj.weight", drawn(HIDDEN, HIDDEN)
        for part, shape in (("gate", (INNER, HIDDEN)), ("up", (INNER, HIDDEN)), ("down", (HIDDEN, INNER))):
            yield f"{at}.mlp.{part}_proj.weight", drawn(*shape)
        yield f"{at}.input_layernorm.weight", ones
        yield f"{at}.post_attention_layernorm.weight", ones
    yield "model.norm.weight", ones
    # Only printable characters stand out: the others' rows are zero.
    rows = [drawn(1, HIDDEN, scale=1.0)[1] if _printable(token) else bytes(2 * HIDDEN) for token in tokens]
    yield "lm_head.weight", ((len(tokens), HIDDEN), b"".join(rows))


def _printable(token: str) -> bool:
    return len(token) == 1 and " " < token <= "~"


def _bfloat16(value: float) -> bytes:
    return struct.pack("<f", value)[2:]


def _letter(byte: int) -> str:
    """Byte-level BPE shows each byte as one character: itself where it is printable, else one from 256 on."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in shown:
        return chr(byte)
    return chr(256 + sorted(set(range(256)) - set(shown)).index(byte))


def _write_safetensors(path: Path, weights: dict[str, Weight]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (shape, data) in weights.items():
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(data for _shape, data in weights.values()))


def _json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))
