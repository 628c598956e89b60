"""The law of whole sequences: two Markov chains of three tokens, as real models in the real loop.

Every sequence of four tokens has a known probability, so the counts of all 81 are held against it.
Four tokens are γ + 2, so that a bonus, and what follows it, are inside. Theory.md, section 7, V2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from specbench.drafts.hf import HfDraft
from specbench.engines import loop
from specbench.engines.rows import Limits
from specbench.laws.law_stats import pearson
from specbench.laws.law_tests import Measured
from specbench.models import attention
from specbench.models.lm import CausalLM
from specbench.models.sampling import uniforms
from specbench.records import Sampling

TARGET = ((0.5, 0.3, 0.2), (0.2, 0.5, 0.3), (0.3, 0.25, 0.45))
DRAFT = ((0.2, 0.3, 0.5), (0.45, 0.35, 0.2), (0.2, 0.6, 0.2))
"""Row by row, the law of the next token after each one."""
START, GAMMA, LENGTH = 0, 2, 4
ROWS = 5000
"""Sequences that are decoded together."""
FEWEST = 5000
"""Below this the χ² of 81 cells is not yet χ²."""
LAWS = (Sampling(), Sampling(0.8), Sampling(0.8, 2))
"""A temperature or filter that reaches one side alone shows only where it is not 1 or off."""


class Pair:
    """The two chains as models of the Llama architecture, float64."""

    def __init__(self, device: torch.device) -> None:
        self.target = CausalLM(chain(TARGET).to(device), "reference target")
        self.draft = HfDraft(CausalLM(chain(DRAFT).to(device), "reference draft"), len(TARGET))

    def counts(self, size: int, sampling: Sampling, seed: int) -> npt.NDArray[np.int64]:
        """How often each sequence came, (81,), by its digits in base 3."""
        seen = np.zeros(len(TARGET) ** LENGTH, dtype=np.int64)
        for part, done in enumerate(range(0, size, ROWS)):
            texts = self._texts(min(ROWS, size - done), sampling, seed, part)
            digits = len(TARGET) ** np.arange(LENGTH - 1, -1, -1)
            seen += np.bincount(texts @ digits, minlength=len(seen))
        return seen

    def _texts(self, rows: int, sampling: Sampling, seed: int, part: int) -> npt.NDArray[np.int64]:
        sizes = (("draft", GAMMA), ("accept", GAMMA), ("correction", 1))
        key = f"sequence/{part}/{sampling}"
        draws = [uniforms(seed, key, 0, name, (rows, LENGTH, n)) for name, n in sizes]
        job = loop.Job(
            [[START]] * rows,
            GAMMA,
            sampling,
            Limits(LENGTH, self.target.context, frozenset(), self.draft.vocab_size),
            torch.cat(draws, dim=2).to(self.target.device),
        )
        results = loop.decode(job, self.target, self.draft)
        return np.array([one.row.output for one in results], dtype=np.int64)


def chain(rows: Sequence[Sequence[float]]) -> torch.nn.Module:
    """A model whose law depends on the last token alone, by the rows given.

    Attention and feed-forward add nothing; an embedding is the token's own direction, and the head
    reads the logs of its row. The forward, its positions and its cache are the usual ones.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    size, vocab = 16, len(rows)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=size,
        intermediate_size=size,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        rms_norm_eps=1e-30,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).double().eval()
    logs = torch.tensor(rows, dtype=torch.float64).log()
    with torch.no_grad():
        layer = model.model.layers[0]
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(vocab, size))
        model.lm_head.weight.zero_()
        # The norm stretches a direction of length 1 to √size = 4, exactly so in float32 too.
        model.lm_head.weight[:, :vocab] = logs.T / math.sqrt(size)
    model.set_attn_implementation(attention.register())
    found: torch.nn.Module = model
    return found


def sequence_law(sampling: Sampling) -> npt.NDArray[np.float64]:
    """Probability of each sequence, (81,), by its digits in base 3."""
    rows = np.array([_filtered(row, sampling) for row in TARGET])
    out = []
    for tokens in itertools.product(range(len(TARGET)), repeat=LENGTH):
        steps = zip((START, *tokens), tokens, strict=False)
        out.append(math.prod(rows[before, after] for before, after in steps))
    return np.array(out)


def _filtered(row: Sequence[float], sampling: Sampling) -> npt.NDArray[np.float64]:
    """Temperature, then the `top_k` most likely; by hand, not by the functions under test."""
    found: npt.NDArray[np.float64] = np.array(row) ** (1.0 / sampling.temperature)
    if sampling.top_k:
        found[np.argsort(found)[: -sampling.top_k]] = 0.0
    found /= found.sum()
    return found


def name_of(sampling: Sampling) -> str:
    """A test's name: what it counts, and under which law."""
    cells = int((sequence_law(sampling) > 0).sum())
    kept = f", top-k {sampling.top_k}" if sampling.top_k else ""
    return f"{cells} outcomes, temperature {sampling.temperature:g}{kept}"


def sequence_test(pair: Pair, sampling: Sampling, size: int, seed: int) -> Measured:
    """Counts of all sequences against their law."""
    seen = pair.counts(size, sampling, seed)
    return pearson("sequence", name_of(sampling), seen, sequence_law(sampling))
