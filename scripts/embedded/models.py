"""Builds the target and the draft, and grows a shallow target into a deep one."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from scripts.embedded.vocab import CONTEXT, VOCABULARY

BASE_LAYERS, COPIES, COPY_SCALE = 8, 4, 0.1
DRAFT_THETA = 100.0  # one layer looks at near tokens; a short period tells them apart better
_TARGET = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4}
_DRAFT = {"hidden_size": 320, "intermediate_size": 1024, "num_attention_heads": 5}


def _config(layers: int, sizes: dict[str, int], theta: float = 10_000.0) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY,
        num_hidden_layers=layers,
        num_key_value_heads=sizes["num_attention_heads"],
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        **sizes,
    )


def base_target(seed: int) -> LlamaForCausalLM:
    """Returns the shallow target with fresh weights."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(_config(BASE_LAYERS, _TARGET))


def deep_target() -> LlamaForCausalLM:
    """Returns the deep target; its weights are to be filled in."""
    return LlamaForCausalLM(_config(BASE_LAYERS * COPIES, _TARGET))


def draft(seed: int) -> LlamaForCausalLM:
    """Returns the draft of one layer with fresh weights."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(_config(1, _DRAFT, DRAFT_THETA))


def grow(base: LlamaForCausalLM) -> LlamaForCausalLM:
    """Stacks every layer several times; the copies at first add only a tenth of their output."""
    deep = deep_target()
    deep.model.embed_tokens.load_state_dict(base.model.embed_tokens.state_dict())
    deep.model.norm.load_state_dict(base.model.norm.state_dict())
    for index, layer in enumerate(deep.model.layers):
        layer.load_state_dict(copy.deepcopy(base.model.layers[index // COPIES].state_dict()))
        if index % COPIES:
            with torch.no_grad():
                layer.self_attn.o_proj.weight.mul_(COPY_SCALE)
                layer.mlp.down_proj.weight.mul_(COPY_SCALE)
    return deep


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """Saves the model in bfloat16 safetensors with a generation config that names only the end."""
    rounded = copy.deepcopy(model).to(torch.bfloat16)
    rounded.generation_config = GenerationConfig(eos_token_id=0)
    rounded.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)


def load(folder: Path) -> LlamaForCausalLM:
    """Loads a saved model as its users do: the bfloat16 weights as float32."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


def speed_up(model: LlamaForCausalLM) -> None:
    """Compiles the layers for training; they share one compiled form."""
    for layer in model.model.layers:
        layer.compile()
