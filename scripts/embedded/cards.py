"""Writes the model cards from the measured figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from scripts.embedded import distil, models, sample, target
from scripts.embedded.corpus import HELD_CHAPTERS
from scripts.embedded.evaluate import CONTINUED
from scripts.embedded.training import LENGTH

_HEAD = """---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
---

# specbench embedded {name}

{what}

It exists so that `specbench` can be tried, tested and demonstrated without a model hub. Made by
`python -m scripts.embedded` (a small set of modules in `scripts/embedded/`) on one CPU thread,
deterministic from a seed up to the rounding of the CPU's arithmetic.
"""

_TEXTS = """
## Texts

Public domain only, taken from Debian packages: Jane Austen's six novels (`r-cran-janeaustenr`)
and the King James bible (`bible-kjv-text`). {train_tokens:,} tokens of the tokenizer were trained
on ({train_bytes:,} bytes); {held_tokens:,} tokens ({held_bytes:,} bytes) were held out from the
tokenizer and from both models: the last {chapters} chapters of each novel, and the books Ruth,
Esther, Jonah, Philippians and James whole. The prompts in `specbench/data/passages.jsonl` are cut
from these held-out chapters.

The tokenizer is a byte-level BPE with 1,024 entries, trained on the training part, the same for
target and draft. `<|endoftext|>` (id 0) stands before and after every chapter in training: it is
the end token, and also the begin token for those who want one; the tokenizer adds neither by
itself. There is no chat template.
"""

_FIGURES = """
## Figures

All measured on the shipped weights (rounded to bfloat16, loaded as float32), over {prompts}
held-out passages continued by {continued} tokens, batch 1.

| figure | value |
| --- | --- |
| alpha at temperature 1: mean of sum of min(p, q) on text sampled from the target | {alpha:.3f} |
| the same, continuing novels / scripture | {alpha_novel:.3f} / {alpha_scripture:.3f} |
| greedy agreement along the target's greedy text | {greedy_agreement:.3f} |
| held-out loss of the target, nats per token / per byte | {target_token:.3f} / {target_byte:.3f} |
| held-out loss of the draft, nats per token / per byte | {draft_token:.3f} / {draft_byte:.3f} |

Temperature 1 comes first on purpose: greedy text of so small a model falls into loops, and loops
flatter the agreement.

## Limits

The text is half sense: sentences in the manner of Austen or of the bible that lead nowhere. The
models know nothing, follow no instructions, and reflect texts of their time. The context is
1,024 tokens by configuration, but training windows had {length} tokens. Do not use them for
anything but trying out tools.

## Licence

The weights are under Apache-2.0; the texts are in the public domain.
"""

_WHAT = """A small Llama language model, the {name} of the pair: {layers} layer{s}, width {width},
{count:,} parameters."""

_TARGET_TRAINING = """
## Training

1. A shallow target of {shallow} layers: {base_steps:,} steps of {batch} windows of {length} tokens
   ({base_tokens:,} tokens), cross entropy of the next token.
2. Every layer stacked {copies} times, the copies' output projections (`o_proj`, `down_proj`)
   scaled by {scale}; the deep model trained on for {deep_steps:,} steps ({deep_tokens:,} tokens).

Muon for the layers' matrices, AdamW for embeddings and norms, short warm-up, half a cosine down.
Many thin layers are chosen because time on a CPU at batch 1 follows the number of layers.
"""

_DRAFT_TRAINING = """
## Training

Distilled from the target from fresh weights: {steps:,} steps of {batch} sequences, then {more:,}
more after a second warm-up to {part:.0%} of the rate ({tokens:,} tokens seen).
The sequences are the target's own samples at temperature 1, {sampled} tokens each after {prefix}
tokens of the training text ({sampled_tokens:,} tokens sampled in all), and, every third step, plain
windows of the training text. The loss is a mixture of the cross
entropy with the target's probabilities (the KL divergence but for a constant) and the total
variation distance (which is 1 - alpha), the latter's share rising to {share:.0%} by step {half}.
Muon for the layer's matrices, AdamW for embeddings and norms. The rotary base is {theta:.0f}, not
10,000: one layer lives on near tokens, and a short period tells them apart better.
"""


def _training(name: str) -> str:
    """The section on how one of the two was trained."""
    base, deep, plan = target.BASE, target.DEEP, distil.PLAN
    if name == "target":
        return _TARGET_TRAINING.format(
            shallow=models.BASE_LAYERS,
            copies=models.COPIES,
            scale=models.COPY_SCALE,
            batch=base.batch,
            length=LENGTH,
            base_steps=base.steps,
            deep_steps=deep.steps,
            base_tokens=base.steps * base.batch * LENGTH,
            deep_tokens=deep.steps * deep.batch * LENGTH,
        )
    steps = plan.steps + distil.MORE.steps
    shards = -(-steps // distil.SHARD_STEPS)
    length = (2 * (sample.PREFIX + sample.SAMPLED - 1) + LENGTH) / 3
    return _DRAFT_TRAINING.format(
        steps=plan.steps,
        more=distil.MORE.steps,
        part=distil.MORE.rate / plan.rate,
        batch=plan.batch,
        tokens=round(steps * plan.batch * length),
        sampled=sample.SAMPLED,
        prefix=sample.PREFIX,
        sampled_tokens=shards * sample.BATCH * sample.SAMPLED,
        share=distil.VARIATION_SHARE,
        half=plan.steps // 2,
        theta=models.DRAFT_THETA,
    )


def _texts(work: Path) -> str:
    """The section on the texts."""
    sizes = json.loads((work / "sizes.json").read_text(encoding="utf-8"))
    return _TEXTS.format(
        train_tokens=len(np.load(work / "train.npy")),
        held_tokens=len(np.load(work / "held.npy")),
        chapters=HELD_CHAPTERS,
        **sizes,
    )


def card(name: str, work: Path, figures: dict[str, Any]) -> str:
    """The model card of the target or the draft."""
    model = models.load(work / name)
    layers = int(model.config.num_hidden_layers)
    what = _WHAT.format(
        name=name,
        layers=layers,
        s="" if layers == 1 else "s",
        width=model.config.hidden_size,
        count=model.num_parameters(),
    )
    numbers = {key: value for key, value in figures.items() if isinstance(value, float)}
    token, byte = figures["loss_per_token"], figures["loss_per_byte"]
    table = _FIGURES.format(
        prompts=figures["prompts"],
        continued=CONTINUED,
        length=LENGTH,
        target_token=token["target"],
        target_byte=byte["target"],
        draft_token=token["draft"],
        draft_byte=byte["draft"],
        **numbers,
    )
    return _HEAD.format(name=name, what=what) + _texts(work) + _training(name) + table
