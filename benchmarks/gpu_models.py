"""What `gpu.py` runs: shapes, models with random weights or a known law, one way to decode.

No hub is asked: the shapes stand here, and the embedded pair comes with the checkout.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

import specbench
from specbench.drafts.hf import HfDraft
from specbench.engines.loop import Job, RowResult, decode
from specbench.engines.rows import Limits
from specbench.models import attention, loading
from specbench.models.lm import CausalLM
from specbench.models.sampling import uniforms
from specbench.models.static import CudaGraphs, Eager, Pool, Runner
from specbench.records import Cycle, Sampling

PASSAGES = Path(specbench.__file__).parent / "data" / "passages.jsonl"
COMMON: dict[str, Any] = {
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    "tie_word_embeddings": False,
}
LLAMA_8B: dict[str, Any] = {
    **COMMON,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
"""The shape of Llama-3.1-8B."""
LLAMA_1B: dict[str, Any] = {
    **COMMON,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
"""The shape of Llama-3.2-1B, its head untied, so that its law can be set."""
SMALL = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
DRY_8B = {**LLAMA_8B, **SMALL, "num_hidden_layers": 4}
DRY_1B = {**LLAMA_1B, **SMALL, "num_hidden_layers": 1}


@dataclass(slots=True)
class Bench:
    """What the stages share."""

    device: torch.device
    dry: bool
    proven: bool = False
    """Whether the tokens of this device have been shown to be right."""
    pairs: dict[str, tuple[CausalLM, CausalLM]] = field(default_factory=dict)

    def pick(self, real: Any, dry: Any) -> Any:
        """The first on a GPU, the second in a rehearsal."""
        return dry if self.dry else real

    def sync(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    @contextmanager
    def graphs(self, pair: Sequence[CausalLM]) -> Iterator[Runner]:
        """The models over sessions of fixed shapes for a moment; captured where there is CUDA."""
        runner: Runner = CudaGraphs() if self.device.type == "cuda" else Eager()
        before = [lm.make_session for lm in pair]
        for lm in pair:
            pool = Pool(runner)
            pool.reserve(self.pick(1024, 64))
            lm.make_session = pool
        try:
            yield runner
        finally:
            for lm, made in zip(pair, before, strict=True):
                lm.make_session = made

    def embedded(self, device: torch.device | None = None) -> tuple[CausalLM, CausalLM]:
        """The pair that comes along, float32; loaded once on the bench's own device."""
        if device is not None:
            return _embedded(device)
        if "embedded" not in self.pairs:
            self.pairs["embedded"] = _embedded(self.device)
        return self.pairs["embedded"]

    def large(self) -> tuple[CausalLM, CausalLM]:
        """The 8B and 1B shapes with random weights in bfloat16, built once."""
        if "large" not in self.pairs:
            configs = self.pick((LLAMA_8B, LLAMA_1B), (DRY_8B, DRY_1B))
            target, draft = (random_model(c, self.device, i) for i, c in enumerate(configs))
            self.pairs["large"] = CausalLM(target, "8B"), CausalLM(draft, "1B")
        return self.pairs["large"]


def _embedded(device: torch.device) -> tuple[CausalLM, CausalLM]:
    target, draft = (
        CausalLM(
            loading.load_model(loading.resolve(ref, "--target"), device=device, dtype="float32"),
            ref,
        )
        for ref in ("embedded/target", "embedded/draft")
    )
    return target, draft


def random_model(config: dict[str, Any], device: torch.device, seed: int) -> Any:
    """Random weights made on the device itself, so that buffers are right too."""
    torch.manual_seed(seed)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.LlamaConfig(**config),
            dtype=torch.bfloat16,
            attn_implementation=attention.register(),
        )
    return model.eval()


def set_law(model: Any, law: Tensor) -> Tensor:
    """Make every step's law (V,) at temperature 1 this one, at the full cost of all layers.

    Attention and feed-forward add nothing, every embedding is ones, and the head's rows sum to the
    law's logarithms. Returns the law as the head's and the logits' dtype round it.
    """
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.fill_(1.0)
        model.model.norm.weight.fill_(1.0)
        head = model.lm_head.weight
        logs = law.log().clamp(min=-1e4).to(head.dtype)
        head.copy_((logs / head.shape[1]).unsqueeze(1).expand_as(head))
        return (head[:, 0].double() * head.shape[1]).to(head.dtype).double().softmax(dim=-1)


def set_alpha(target: CausalLM, draft: CausalLM, alpha: float) -> float:
    """Laws with Σ min(p, q) = α: p on the even ids, q = α·p + (1 − α)·(p moved to the odd ids).

    Returns Σ min(p, q) of the laws as rounded.
    """
    torch.manual_seed(0)
    half = torch.randn(target.vocab_size // 2, dtype=torch.float64).softmax(dim=-1)
    zeros = torch.zeros_like(half)
    p = torch.stack([half, zeros], dim=1).flatten().to(target.device)
    q = torch.stack([alpha * half, (1.0 - alpha) * half], dim=1).flatten().to(target.device)
    rounded = set_law(target.model, p), set_law(draft.model, q)
    return float(torch.minimum(*rounded).sum())


def run(
    pair: tuple[CausalLM, CausalLM],
    prompts: Sequence[Sequence[int]],
    gamma: int,
    temperature: float,
    tokens: int,
    first: int = 0,
) -> list[RowResult]:
    """Decode a batch with our loop; a row's uniforms are keyed by its place, from `first` on."""
    target, draft = pair
    limits = Limits(tokens, min(target.context, draft.context), frozenset(), draft.vocab_size)
    shape = (1, tokens, 2 * gamma + 1)
    rows = range(first, first + len(prompts))
    draws = torch.cat([uniforms(0, str(row), 0, "all", shape) for row in rows])
    job = Job(prompts, gamma, Sampling(temperature), limits, draws.to(target.device))
    return decode(job, target, HfDraft(draft, target.vocab_size) if gamma else None)


def figures(cycles: Sequence[Cycle]) -> dict[str, float | None]:
    """α, τ, L and the phases of a cell from its cycles."""
    count, tested = len(cycles), sum(c.num_tested for c in cycles)
    tokens = sum(c.num_delivered for c in cycles)
    return {
        "alpha": sum(c.num_accepted for c in cycles) / tested if tested else None,
        "tau": sum(len(c.emitted_ids) for c in cycles) / count,
        "latency_ms": 1e3 * sum(c.seconds for c in cycles) / tokens,
        "t_draft_ms": 1e3 * sum(c.draft_s for c in cycles) / count,
        "t_verify_ms": 1e3 * sum(c.verify_s for c in cycles) / count,
        "t_other_ms": 1e3 * sum(c.other_s for c in cycles) / count,
        "cycles": count,
    }


def passages(count: int) -> list[list[int]]:
    """The first held-out passages, cut short, as ids of the embedded pair."""
    tokenizer = loading.load_tokenizer(loading.resolve("embedded/target", "--target"))
    rows = [json.loads(line) for line in PASSAGES.read_text("utf-8").splitlines()[:count]]
    return [tokenizer(row["text"]).input_ids[: 32 + 8 * i] for i, row in enumerate(rows)]


def random_prompts(count: int, length: int, vocab: int) -> list[list[int]]:
    """Random ids, the same each time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(3, vocab, (count, length), generator=generator).tolist()
