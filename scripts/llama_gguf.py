"""Write a Llama folder (safetensors, a BPE tokenizer) as a GGUF file, in float32 or quantised.

For the embedded pair and others like it, so that llama.cpp runs the very weights that this tool
runs; llama.cpp's own convert_hf_to_gguf.py reads every architecture.

Example: python -m scripts.llama_gguf specbench/embedded/target embedded-target.gguf
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.torch import load_file

LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}

KINDS = {
    "F32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "Q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "Q4_0": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
}
"""Formats that the package writes; llama.cpp's `llama-quantize` has more."""


def main(argv: list[str] | None = None) -> None:
    """Convert one folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--type", choices=KINDS, default="F32", help="of the matrices")
    options = parser.parse_args(argv)
    convert(options.folder, options.file, options.type)
    print(f"{options.file}: {options.file.stat().st_size / 1e6:.1f} MB")


def convert(folder: Path, file: Path, kind: str = "F32") -> None:
    """Write `file`; the folder's architecture has to be Llama without biases."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "llama" or config["attention_bias"] or config["mlp_bias"]:
        raise SystemExit(f"{folder}: not a Llama without biases")
    writer = gguf.GGUFWriter(str(file), "llama")
    _describe(writer, config)
    _write_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text()), config)
    stored, of_file = KINDS[kind]
    writer.add_file_type(of_file)
    for name, weights in _tensors(folder, config):
        if weights.ndim > 1 and stored is not gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, gguf.quants.quantize(weights, stored), raw_dtype=stored)
        else:
            writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: Any, config: dict[str, Any]) -> None:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    head = config.get("head_dim") or width // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _write_tokenizer(writer: Any, tokenizer: dict[str, Any], config: dict[str, Any]) -> None:
    model = tokenizer["model"]
    special = {token["id"] for token in tokenizer["added_tokens"] if token["special"]}
    names = {index: token for token, index in model["vocab"].items()}
    names |= {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    kinds = gguf.TokenType
    tokens = [names.get(i, f"[unused{i}]") for i in range(config["vocab_size"])]
    types = [
        kinds.CONTROL if i in special else kinds.NORMAL if i in names else kinds.UNUSED
        for i in range(len(tokens))
    ]
    merges = [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def _tensors(folder: Path, config: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }
    for name, tensor in load_file(folder / "model.safetensors").items():
        weights = tensor.float().numpy()
        module = name.removesuffix(".weight")
        if module in WHOLE:
            yield f"{WHOLE[module]}.weight", weights
            continue
        _, _, layer, inner = module.split(".", 3)
        short = LAYER[inner]
        if short in heads:
            weights = _interleaved(weights, heads[short])
        yield f"blk.{layer}.{short}.weight", weights


def _interleaved(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a head in the order of llama.cpp's rotation: pairs side by side, not halves."""
    rows, columns = weights.shape
    halves = weights.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))


if __name__ == "__main__":
    main()
