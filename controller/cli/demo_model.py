"""A tiny model with random weights that a real llama-server loads, for the demo and the tests.

gguf and numpy, which the agent's extra brings, are imported when one is written.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any


def write_tiny_gguf(
    path: str | os.PathLike[str],
    n_embd: int = 64,
    n_layer: int = 2,
    seed: int = 0,
    *,
    name: str = "tiny-llama",
    n_ctx: int = 2048,
    architecture: str = "llama",
) -> Path:
    """Writes a llama model with random weights that a real llama-server loads; the same arguments give the same bytes.

    64 x 2 is half a megabyte and ready in well under a second; 1024 x 24 is about 1 GB, with a visible load. It never
    ends a sentence by itself: answers run to `max_tokens`, in printable ASCII. Another `architecture` makes a file
    that no engine knows. The file appears whole (written beside, then renamed). Source: our own generator.
    """
    import gguf
    import numpy as np

    heads = 4
    if n_embd % (2 * heads):
        raise ValueError(f"n_embd: {n_embd} is not a multiple of {2 * heads}")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    os.close(handle)
    tokens, kinds = _vocabulary(gguf)
    random = np.random.default_rng(seed)

    scale = 0.4 / n_embd**0.5  # the wider, the smaller: else the noise of a large model drowns the bias below

    def noise(*shape: int) -> Any:
        return (random.standard_normal(shape, dtype=np.float32) * scale).astype(np.float32)

    writer = gguf.GGUFWriter(scratch, architecture)
    try:
        writer.add_name(name)
        writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        writer.add_context_length(n_ctx)
        writer.add_embedding_length(n_embd)
        writer.add_block_count(n_layer)
        writer.add_feed_forward_length(2 * n_embd)
        writer.add_head_count(heads)
        writer.add_head_count_kv(heads)
        writer.add_rope_dimension_count(n_embd // heads)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_vocab_size(len(tokens))
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(tokens)
        writer.add_token_scores([-float(i) for i in range(len(tokens))])
        writer.add_token_types(kinds)
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(False)
        writer.add_chat_template(
            "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}"
        )
        # The first dimension of the residual stream is a constant 1 that no block writes to, so the first column of
        # the output head acts as a bias a token: only printable ASCII is ever likely.
        embedding = noise(len(tokens), n_embd)
        embedding[:, 0] = 1.0
        writer.add_tensor("token_embd.weight", embedding)
        ones = np.ones(n_embd, dtype=np.float32)
        for layer in range(n_layer):
            block = f"blk.{layer}."
            into_stream = noise(n_embd, n_embd)
            into_stream[0, :] = 0.0
            down = noise(n_embd, 2 * n_embd)
            down[0, :] = 0.0
            writer.add_tensor(block + "attn_norm.weight", ones)
            writer.add_tensor(block + "attn_q.weight", noise(n_embd, n_embd))
            writer.add_tensor(block + "attn_k.weight", noise(n_embd, n_embd))
            writer.add_tensor(block + "attn_v.weight", noise(n_embd, n_embd))
            writer.add_tensor(block + "attn_output.weight", into_stream)
            writer.add_tensor(block + "ffn_norm.weight", ones)
            writer.add_tensor(block + "ffn_gate.weight", noise(2 * n_embd, n_embd))
            writer.add_tensor(block + "ffn_up.weight", noise(2 * n_embd, n_embd))
            writer.add_tensor(block + "ffn_down.weight", down)
        writer.add_tensor("output_norm.weight", ones)
        head = noise(len(tokens), n_embd) * 4
        likely = np.array([kind == gguf.TokenType.NORMAL for kind in kinds])
        head[:, 0] = np.where(likely, 4.0, -4.0)
        writer.add_tensor("output.weight", head)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.chmod(scratch, 0o644)
        os.replace(scratch, target)
    finally:
        Path(scratch).unlink(missing_ok=True)
    return target


def _vocabulary(gguf: Any) -> tuple[list[bytes], list[int]]:
    """A SentencePiece-style vocabulary: the control tokens, every byte, printable ASCII, some words."""
    kind = gguf.TokenType
    entries = [("<unk>", kind.UNKNOWN), ("<s>", kind.CONTROL), ("</s>", kind.CONTROL)]
    entries += [(f"<0x{byte:02X}>", kind.BYTE) for byte in range(256)]
    entries += [("\u2581", kind.NORMAL)] + [(chr(code), kind.NORMAL) for code in range(33, 127)]
    words = (
        "book",
        "card",
        "channel",
        "for",
        "hour",
        "model",
        "next",
        "on",
        "ready",
        "slot",
        "the",
        "time",
        "to",
        "you",
    )
    entries += [("\u2581" + word, kind.NORMAL) for word in words]
    return [text.encode() for text, _ in entries], [int(k) for _, k in entries]
