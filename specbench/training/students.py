"""What is taught: a model of its own."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from specbench.drafts.base import Draft
from specbench.drafts.hf import HfDraft
from specbench.drafts.layerskip import layers_from
from specbench.drafts.parts import layers_of, with_layers
from specbench.errors import UsageError
from specbench.models import attention
from specbench.models.lm import UNLIMITED, CausalLM, context_limit
from specbench.models.loading import quiet_bars
from specbench.training.losses import divergences
from specbench.training.plan import Plan
from specbench.training.teacher import Lesson

HEAD = 64
"""Width of an attention head of a new model, where that divides its width."""
THETA = 10_000.0
LONGEST = 2**17
"""Context of a new model for a target without a limit."""


class Student(Protocol):
    """A draft that learns."""

    depth: int
    """Tokens of a chain that are taught."""

    @property
    def module(self) -> nn.Module:
        """What learns, in float32."""

    def losses(self, lesson: Lesson) -> list[tuple[Tensor, Tensor]]:
        """KL and total variation at each depth of a chain, from 0."""

    def draft(self) -> Draft:
        """As a draft of the target, at its present weights."""

    def save(self, folder: Path) -> None:
        """Write the config and the weights as its draft kind loads them."""


class ModelStudent:
    """A causal LM of its own, loaded as `hf:`."""

    depth = 1

    def __init__(self, plan: Plan, target: CausalLM, eos: frozenset[int]) -> None:
        self._target = target
        self._eos = sorted(eos)
        made = _cut(plan, target) if plan.from_layers else _new(plan, target)
        self.module: Any = made.float().to(target.device).train()
        self.module.requires_grad_(True)

    def losses(self, lesson: Lesson) -> list[tuple[Tensor, Tensor]]:
        """At every position of the windows."""
        logits = self.module(input_ids=lesson.ids, use_cache=False).logits
        return [divergences(logits[..., : lesson.p.shape[-1]].float(), lesson.p)]

    def draft(self) -> Draft:
        """Of kind `hf`."""
        return HfDraft(CausalLM(self.module.eval(), "draft"), self._target.vocab_size)

    def save(self, folder: Path) -> None:
        """As transformers writes a model."""
        self.module.generation_config = GenerationConfig(eos_token_id=self._eos or None)
        with quiet_bars():
            self.module.save_pretrained(folder)


def _new(plan: Plan, target: CausalLM) -> Any:
    """Fresh weights in the shape of a small Llama with the target's vocabulary and context."""
    width = plan.width or int(target.config.hidden_size)
    if width % 2:
        raise UsageError(f"--width {width}: it must be even", hint=f"--width {width + 1}")
    size = next(s for s in (HEAD, 32, 16, 8, 4, 2) if width % s == 0)
    context = context_limit(target.config)
    config = LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=width,
        intermediate_size=-(-8 * width // 3 // 16) * 16,
        num_hidden_layers=plan.layers,
        num_attention_heads=width // size,
        num_key_value_heads=width // size,
        head_dim=size,
        max_position_embeddings=LONGEST if context == UNLIMITED else context,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        attn_implementation=attention.register(),
    )
    with torch.random.fork_rng():
        torch.manual_seed(plan.seed)
        return LlamaForCausalLM(config)


def _cut(plan: Plan, target: CausalLM) -> Any:
    """A copy of the target with some of its layers."""
    chosen = _chosen(plan.from_layers, len(layers_of(target.model)[2]))
    model = copy.deepcopy(with_layers(target.model, chosen))
    config = model.config.get_text_config(decoder=True)
    config.num_hidden_layers = len(chosen)
    if types := getattr(config, "layer_types", None):
        config.layer_types = [types[at] for at in chosen]
    for place, layer in enumerate(layers_of(model)[2]):
        for part in layer.modules():
            if hasattr(part, "layer_idx"):
                setattr(part, "layer_idx", place)  # noqa: B010
    return model


def _chosen(value: str, count: int) -> list[int]:
    try:
        return layers_from(int(value) if value.isdigit() else value, count, "")
    except UsageError as err:
        raise UsageError(
            f"--from-layers: {err.what.partition(': ')[2]}",
            where=err.where,
            hint="--from-layers 4 (the first ones), or --from-layers 0-3+29",
        ) from err
