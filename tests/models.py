"""Tiny real models for the engine's tests, and the slow, sure way to decode with them.

Init range 0.5: with the default 0.02 random models fall into loops of one token, which hide faults
of the cache. `plain` recomputes the whole text for every token with stock attention: `sdpa`, which
is exact in float64 (`eager` has a float32 softmax), but `eager` for Gemma 2, whose score cap the
`sdpa` of transformers 5.17 ignores.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor

from specbench.drafts.hf import HfDraft
from specbench.engines.loop import Job, RowResult, decode
from specbench.engines.rows import Limits
from specbench.models import attention
from specbench.models.lm import CausalLM
from specbench.models.sampling import uniforms
from specbench.records import Sampling

torch.set_num_threads(1)

GREEDY = Sampling(temperature=0.0)
SEED = 0
NO_IDS = {"bos_token_id": None, "eos_token_id": None}
COMMON: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.5,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    **NO_IDS,
}
GEMMA = {**COMMON, "head_dim": 8, "sliding_window": 8}
MIXED = ["sliding_attention", "full_attention"]


def config(family: str, vocab: int = 32, **changes: Any) -> Any:
    """A tiny config of a family of decoder."""
    if family == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
        return hf.GPT2Config(
            **{"vocab_size": vocab, "initializer_range": 0.5, **sizes, **NO_IDS, **changes}
        )
    makers: dict[str, tuple[type, dict[str, Any]]] = {
        "llama": (hf.LlamaConfig, COMMON),
        "mistral": (hf.MistralConfig, {**COMMON, "sliding_window": 8}),
        "qwen2": (hf.Qwen2Config, COMMON),
        "qwen3": (hf.Qwen3Config, {**COMMON, "head_dim": 8}),
        "gemma2": (hf.Gemma2Config, {**GEMMA, "layer_types": MIXED}),
        "gemma3": (hf.Gemma3TextConfig, {**GEMMA, "layer_types": MIXED}),
    }
    make, sizes = makers[family]
    return make(**{"vocab_size": vocab, **sizes, **changes})


def build(family: str = "llama", seed: int = 0, vocab: int = 32, **changes: Any) -> Any:
    """RND(seed, V) of a family, float32, in eval mode, with stock attention."""
    made = config(family, vocab, **changes)
    torch.manual_seed(seed)
    stock = "eager" if family == "gemma2" else "sdpa"
    return hf.AutoModelForCausalLM.from_config(made, attn_implementation=stock).eval()


@cache
def rnd(family: str = "llama", seed: int = 0, vocab: int = 32) -> Any:
    """The same in float64, made once."""
    return build(family, seed, vocab).double()


def noisy(model: Any, sigma: float = 0.01) -> Any:
    """NOISY(σ): a copy with σ·N(0, 1) added to each parameter."""
    changed = copy.deepcopy(model)
    torch.manual_seed(7)
    for parameter in changed.parameters():
        parameter.data.add_(sigma * torch.randn_like(parameter))
    return changed


def memoryless(seed: int, vocab: int) -> Any:
    """MEMLESS: the law depends on the last token alone. Float64."""
    model = build("llama", seed, vocab, pad_token_id=None, max_position_embeddings=1024)
    _silence(model)
    return model.double()


def iid(probabilities: Sequence[float], context: int = 1024) -> Any:
    """IID(p): every step has the law p, whatever the history; the KV cache is still real."""
    sizes = {"num_hidden_layers": 1, "max_position_embeddings": context, "pad_token_id": None}
    model = build("llama", 0, len(probabilities), **sizes)
    _silence(model)
    model.model.embed_tokens.weight.data.fill_(1.0)
    model.model.norm.weight.data.fill_(1.0)
    logs = [math.log(p) if p > 0 else -1e4 for p in probabilities]
    model.lm_head.weight.data = torch.tensor(logs).unsqueeze(1).repeat(1, 32) / 32
    return model.double()


def _silence(model: Any) -> None:
    """Attention and feed-forward add nothing."""
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.data.zero_()
        layer.mlp.down_proj.weight.data.zero_()


def lm(model: Any, label: str = "target") -> CausalLM:
    """The model as the engine uses it: a copy with our attention."""
    ours = copy.deepcopy(model)
    ours.set_attn_implementation(attention.register())
    return CausalLM(ours, label)


def drafter(model: Any, target: CausalLM) -> HfDraft:
    """A draft of kind `hf` for the target."""
    return HfDraft(lm(model, "draft"), target.vocab_size)


def itself(target: CausalLM) -> HfDraft:
    """SELF: the target as its own draft."""
    return HfDraft(target, target.vocab_size)


def streams(rows: Sequence[str], cycles: int, gamma: int, seed: int = SEED) -> Tensor:
    """Uniforms (rows, cycles, 2γ + 1), each row's keyed by its own name."""
    sizes = (("draft", gamma), ("accept", gamma), ("correction", 1))
    return torch.stack(
        [
            torch.cat([uniforms(seed, row, 0, name, (cycles, n)) for name, n in sizes], dim=1)
            for row in rows
        ]
    )


def run(
    target: CausalLM,
    draft: HfDraft | None,
    prompts: Sequence[Sequence[int]],
    gamma: int,
    *,
    sampling: Sampling = GREEDY,
    max_new: int = 24,
    eos: Sequence[int] = (),
    context: int | None = None,
    seed: int = SEED,
    names: Sequence[str] | None = None,
) -> list[RowResult]:
    """Decode a batch as the engine does; a row's uniforms are keyed by `names` (its index)."""
    both = [target.context, *([draft.context] if draft else [])]
    vocab = draft.vocab_size if draft and gamma else None
    limits = Limits(max_new, min(context or both[0], *both), frozenset(eos), vocab)
    keys = names or [str(i) for i in range(len(prompts))]
    job = Job(prompts, gamma, sampling, limits, streams(keys, max_new, gamma, seed))
    return decode(job, target, draft if gamma else None)


def outputs(results: Sequence[RowResult]) -> list[list[int]]:
    """The delivered tokens of each row."""
    return [r.row.output for r in results]


def counts(result: RowResult) -> list[tuple[int, int, int]]:
    """Drafted, kept and emitted in each cycle of a row."""
    return [(c.gamma, c.num_accepted, len(c.emitted_ids)) for c in result.cycles]


def alpha(results: Sequence[RowResult]) -> tuple[float, int]:
    """Accepted / tested over all cycles, and how many were tested."""
    cycles = [c for r in results for c in r.cycles]
    tested = sum(c.num_tested for c in cycles)
    return sum(c.num_accepted for c in cycles) / tested, tested


def tau(results: Sequence[RowResult]) -> tuple[float, int]:
    """Emitted tokens per cycle as decided, and the number of cycles."""
    cycles = [c for r in results for c in r.cycles]
    return sum(len(c.emitted_ids) for c in cycles) / len(cycles), len(cycles)


def plain(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """Greedy continuation without any cache, lowest id on a tie."""
    text = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            logits = model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1]
            text.append(int((logits == logits.max()).nonzero()[0]))
    return text[len(prompt) :]


def next_law(model: Any, text: Sequence[int]) -> Tensor:
    """Law (V,) of the next token at temperature 1, float64, without any cache."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([list(text)]), use_cache=False).logits[0, -1]
    return logits.double().softmax(dim=-1)


def save(
    model: Any,
    folder: Path,
    *,
    words: Sequence[str] | None = None,
    eos: str | None = None,
    generation: dict[str, Any] | None = None,
    chat_template: str | None = None,
) -> Path:
    """Store a model with a small WordLevel tokenizer, so that it loads by path."""
    entries = words or [f"w{i}" for i in range(model.config.vocab_size)]
    raw = Tokenizer(WordLevel({w: i for i, w in enumerate(entries)}, unk_token=entries[0]))
    raw.pre_tokenizer = WhitespaceSplit()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=eos)
    tokenizer.chat_template = chat_template
    model.generation_config = hf.GenerationConfig(**(generation or {}))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
