"""Random weights in the shape of a real config: real times of models that are not at hand.

Every matrix is stored, read and multiplied as it would be in the real model. The last norm is
silenced, so that the law is the same at every position, the uniform one: what a text says would
mean nothing anyway, and acceptance can then be set exactly by a draft that knows this law.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import AutoModelForCausalLM

from specbench.errors import UsageError
from specbench.models import attention

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
MARK = "random_weights"
"""The attribute that such a model carries."""


def is_random(model: Any) -> bool:
    """Whether a model's weights are random, so that its texts mean nothing."""
    return bool(getattr(model, MARK, False))


def tokenizer_folder(config: Path) -> Path | None:
    """Where a tokenizer lies beside the config, if one does."""
    there = any((config.parent / name).is_file() for name in TOKENIZER_FILES)
    return config.parent if there else None


def check_table(tokenizer: Any, model: Any, where: str) -> None:
    """Refuse a config whose table is too small for the tokenizer that stands in for its own."""
    rows = int(model.get_input_embeddings().weight.shape[0])
    if is_random(model) and len(tokenizer) > rows:
        raise UsageError(
            f"the config has {rows:,} ids, and the tokenizer {len(tokenizer):,}",
            where=where,
            hint="put the model's own tokenizer.json beside its config",
        )


def random_model(config: Any, device: torch.device, dtype: torch.dtype, where: str) -> Any:
    """A model of the config's shape with random weights, and a law that is uniform everywhere.

    Errors
    ------
        `UsageError` where it does not fit into the memory that is free, and where its weights would
        be quantised: random ones are not, and their times are not those of the real model.
    """
    if getattr(config, "quantization_config", None):
        raise UsageError(
            "the config has a quantization_config, and random weights are not quantised",
            where=where,
            hint="a copy without it, for times in --dtype",
        )
    _check_memory(config, device, dtype, where)
    kinds = {"dtype": dtype, "attn_implementation": attention.register()}
    with torch.random.fork_rng(), device:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, **kinds)
    model = model.to(device).eval()
    _silence(model, where)
    setattr(model, MARK, True)
    return model


def _check_memory(config: Any, device: torch.device, dtype: torch.dtype, where: str) -> None:
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config, dtype=dtype)
    needed = sum(p.numel() for p in empty.parameters()) * dtype.itemsize
    if device.type == "cuda":
        free = int(torch.cuda.mem_get_info(device)[0])
    else:
        free = int(psutil.virtual_memory().available)
    if needed > free:
        raise UsageError(
            f"the model does not fit: {needed / 2**30:.1f} GiB of weights, "
            f"{free / 2**30:.1f} GiB free",
            where=where,
            hint="a smaller --dtype, or another device",
        )


def _silence(model: Any, where: str) -> None:
    """Let the last norm give 0, so that every logit is the same; else the head itself."""
    for name, part in model.named_modules():
        outside = not any(piece.isdigit() for piece in name.split("."))
        if outside and ("norm" in name.rpartition(".")[2] or name.endswith("ln_f")):
            _zero_output(part)
    if not _uniform(model):
        for parameter in model.get_output_embeddings().parameters():
            parameter.data.zero_()
    if not _uniform(model):
        raise UsageError("the model's law cannot be made uniform", where=where)


def _zero_output(norm: Any) -> None:
    weight = getattr(norm, "weight", None)
    if weight is None:
        return
    # Some norms multiply by the weight, Gemma's by 1 + weight.
    size = weight.shape[0]
    probe = torch.linspace(-1, 1, size, device=weight.device, dtype=weight.dtype)
    for value in (0.0, -1.0):
        weight.data.fill_(value)
        if getattr(norm, "bias", None) is not None:
            norm.bias.data.zero_()
        with torch.inference_mode():
            if not norm(probe.reshape(1, 1, size)).any():
                return


def _uniform(model: Any) -> bool:
    ids = torch.arange(2, device=model.device).unsqueeze(0)
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits
    return bool((logits == logits[..., :1]).all())
