"""Heads in vLLM's own formats for the embedded target, with the target's weights and no training.

What they draft is poor; that vLLM loads them, drafts with them and counts is what they are for.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specbench.settings.places import EMBEDDED_FOLDER

TARGET = EMBEDDED_FOLDER / "target"
Weights = dict[str, Tensor]


def eagle(folder: Path) -> Path:
    """One layer of the target behind a join of state and embedding that passes the state on."""
    config, weights = _target()
    last = f"model.layers.{config['num_hidden_layers'] - 1}."
    made = {
        name.replace(last, "layers.0."): weight
        for name, weight in weights.items()
        if name.startswith(last) and not name.endswith("input_layernorm.weight")
    }
    made["embed_tokens.weight"] = weights["model.embed_tokens.weight"]
    size = int(config["hidden_size"])
    made["fc.weight"] = torch.cat([torch.zeros(size, size), torch.eye(size)], dim=1)
    return _write(folder, {**config, "num_hidden_layers": 1}, made)


def mimo(folder: Path) -> Path:
    """The target as a MiMo: the same law, and one prediction layer of its own (MTP).

    A MiMo is a Qwen 2, so a Llama with biases of zero.
    """
    config, weights = _target()
    size, count = int(config["hidden_size"]), int(config["num_hidden_layers"])
    made = dict(weights)
    for at in range(count):
        for part in ("q_proj", "k_proj", "v_proj"):
            name = f"model.layers.{at}.self_attn.{part}"
            made[f"{name}.bias"] = torch.zeros(len(weights[f"{name}.weight"]))
    last, head = f"model.layers.{count - 1}.", "model.mtp_layers.0."
    made |= {k.replace(last, head): v.clone() for k, v in made.items() if k.startswith(last)}
    made[f"{head}token_layernorm.weight"] = torch.ones(size)
    made[f"{head}hidden_layernorm.weight"] = torch.ones(size)
    made[f"{head}final_layernorm.weight"] = weights["model.norm.weight"].clone()
    # vLLM joins the hidden state before the embedding here.
    made[f"{head}input_proj.weight"] = torch.cat([torch.eye(size), torch.zeros(size, size)], dim=1)
    shape = {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2"}
    return _write(folder, {**config, **shape, "num_nextn_predict_layers": 1}, made)


def _target() -> tuple[dict[str, object], Weights]:
    config = json.loads((TARGET / "config.json").read_text(encoding="utf-8"))
    weights = load_file(TARGET / "model.safetensors")
    return config, {name: weight.float() for name, weight in weights.items()}


def _write(folder: Path, config: dict[str, object], weights: Weights) -> Path:
    folder.mkdir(parents=True)
    told = json.dumps({**config, "dtype": "float32"}, indent=1)
    (folder / "config.json").write_text(told, encoding="utf-8")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    for file in TARGET.glob("*token*"):
        shutil.copy(file, folder)
    return folder
