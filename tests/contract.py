"""What the contract test of all draft kinds needs: each kind on tiny models, and a watch on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import models
import torch
import transformers as hf
from torch import Tensor

from specbench.drafts import Context, open_draft
from specbench.drafts.base import Draft, Proposal, heard, needs_hidden, needs_kv
from specbench.engines.loop import RowResult
from specbench.models.eagle_head import EagleHead, save_head, shape_for
from specbench.models.lm import CausalLM
from specbench.models.state import TextState
from specbench.records import Cycle, Generation, Sampling

WARM = Sampling(2.0)
"""Spreads the mass of random models over their 32 tokens."""
GAMMA = 3
SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "hf": ("draft", {}),
    "ngram": ("", {"max": 3}),
    "suffix": ("", {}),
    "suffix law=counts": ("", {"law": "counts", "factor": 8}),
    "layerskip": ("", {"layers": 1}),
    "layerskip layers=1-1": ("", {"layers": "1-1"}),
    "sparsekv": ("", {"budget": 6, "sinks": 2}),
    "sparsekv share": ("", {"budget": 0.4, "sinks": 1}),
    "sparsekv snap": ("", {"budget": 4, "select": "snap", "observe": 2}),
    "sparsekv snap share": ("", {"budget": 0.5, "select": "snap", "observe": 3}),
    "quantized": ("", {"keep": "lm_head"}),
    "quantized int4": ("", {"bits": 4, "int8": "down_proj"}),
    "quantized weights": ("", {"inputs": "bfloat16"}),
    "eagle": ("head", {}),
    "eagle few ids": ("few", {}),
    "synthetic": ("", {"alpha": 0.6}),
    "self": ("", {}),
    "external": ("own_draft:Greedy", {"model": "draft"}),
}
"""How each kind is opened, some of them twice: the folder of its model, if any, and its options."""
REPEATS = (7, 3, 9, 7, 3, 9, 7, 3, 9, 4, 7, 3)
PROMPTS: tuple[tuple[int, ...], ...] = (REPEATS, (1, 5, 9), (4,), (2, 17, 30, 4, 4, 8))


@dataclass
class Bench:
    """A target and one draft kind, float64."""

    kind: str
    model: Any
    target: CausalLM
    draft: Draft

    @property
    def rounding(self) -> float:
        """How far two ways to compute the same law may be apart; steps of an input are coarse."""
        return 0.03 if self.kind == "quantized" else 1e-8


def bench(name: str, folder: Path) -> Bench:
    """RND(0) as the target; NOISY(0.1) where a kind wants a model of its own."""
    if not (folder / "draft").exists():
        models.save(models.rnd(), folder / "target")
        models.save(models.noisy(models.rnd(), 0.1), folder / "draft")
        save_heads(folder)
    target = models.lm(models.rnd())
    tokenizer = hf.AutoTokenizer.from_pretrained(folder / "target")
    context = Context(target, tokenizer, torch.device("cpu"), "float64")
    kind, (ref, options) = name.split()[0], SPECS[name]
    options = {k: str(folder / v) if k == "model" else v for k, v in options.items()}
    where = str(folder / ref) if kind in ("hf", "eagle") else ref
    draft = open_draft(kind, where, options, kind, context)
    return Bench(kind, models.rnd(), target, draft)


def save_heads(folder: Path) -> None:
    """Heads of random weights for RND(0): one that drafts all ids, one that drafts 20 of 32."""
    target = models.lm(models.rnd())
    torch.manual_seed(1)
    for name, ids in (("head", None), ("few", torch.arange(20) + torch.arange(20) // 2)):
        head = EagleHead(shape_for(target.config)).double()
        for parameter in head.parameters():
            parameter.data.add_(0.3 * torch.randn_like(parameter))
        (folder / name).mkdir()
        save_head(folder / name, head, ids, target)
        hf.AutoTokenizer.from_pretrained(folder / "target").save_pretrained(folder / name)


@dataclass
class Seen:
    """One proposal, with what it was made from."""

    texts: list[tuple[int, ...]]
    """Of each row, before the cycle."""
    prompts: list[int]
    """How many tokens of each row were its prompt."""
    gamma: int
    uniforms: Tensor
    proposal: Proposal
    behind: Tensor
    """What stood behind the texts afterwards, (rows, drafted)."""


class Watched:
    """A draft that notes its proposals, and may be made to propose less."""

    def __init__(self, draft: Draft, cut: Sequence[int] = ()) -> None:
        self.draft = draft
        self.cut = cut
        self.seen: list[Seen] = []
        self.prompts: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.draft, name)

    def start(self, state: TextState, sampling: Sampling, capacity: int) -> None:
        """Note the prompts."""
        self.prompts = list(state.lengths)
        self.draft.start(state, sampling, capacity)

    def keep_rows(self, index: Tensor, rows: list[int]) -> None:
        """Keep only some rows."""
        self.prompts = [self.prompts[r] for r in rows]
        self.draft.keep_rows(index, rows)

    def propose(self, gamma: int, state: TextState, uniforms: Tensor) -> Proposal:
        """Propose as the draft does, less where a cut says so, cycle by cycle."""
        found = self.draft.propose(gamma, state, uniforms)
        width, rows = found.tokens.shape[1], state.rows
        if self.cut:
            most = self.cut[len(self.seen) % len(self.cut)]
            given = found.counts or (width,) * rows
            counts = tuple(min(most + row % 2, n) for row, n in enumerate(given))
            found = Proposal(found.tokens, found.law, counts)
        texts = [tuple(state.tokens[r, : state.lengths[r]].tolist()) for r in range(rows)]
        behind = [state.tokens[r, state.lengths[r] :][:width].tolist() for r in range(rows)]
        kept = Proposal(
            found.tokens.clone(), None if found.law is None else found.law.clone(), found.counts
        )
        self.seen.append(
            Seen(texts, self.prompts, gamma, uniforms.clone(), kept, torch.tensor(behind))
        )
        return found


def run(
    at: Bench,
    prompts: Sequence[Sequence[int]] = PROMPTS,
    gamma: int = GAMMA,
    *,
    draft: Any = None,
    **how: Any,
) -> list[RowResult]:
    """Decode with the bench's draft."""
    return models.run(at.target, draft or at.draft, prompts, gamma, **how)


def proposed(
    at: Bench,
    text: Sequence[int],
    gamma: int,
    uniforms: Tensor,
    sampling: Sampling,
    prompt: int | None = None,
) -> Proposal:
    """What the draft proposes behind a text that it was given as a prompt; uniforms (1, γ).

    A draft on the target's KV state may depend on how much of the text was the prompt.
    """
    capacity = len(text) + 2 * gamma + 2
    with torch.inference_mode(), heard(at.target, at.draft):
        state = TextState([text], capacity, at.target.device)
        if needs_kv(at.draft) or needs_hidden(at.draft):
            session = at.target.session(1, capacity)
            session.prefill(state.tokens, len(text) - 1)
            if needs_kv(at.draft):
                at.draft.attach(session)
                begun = TextState([text[:prompt]], capacity, at.target.device)
                at.draft.start(begun, sampling, capacity)
                at.draft.commit([0], state)
                return at.draft.propose(gamma, state, uniforms)
        at.draft.start(state, sampling, capacity)
        return at.draft.propose(gamma, state, uniforms)


def of_row(proposal: Proposal, row: int) -> tuple[list[int], Tensor | None]:
    """The ids that are proposed to a row, and their laws."""
    width = proposal.tokens.shape[1]
    count = width if proposal.counts is None else proposal.counts[row]
    law = None if proposal.law is None or not count else proposal.law[row, :count]
    return proposal.tokens[row, :count].tolist(), law


def generations(results: Sequence[RowResult], prompts: Sequence[Sequence[int]]) -> list[Generation]:
    """Results as the engine hands them on."""
    return [
        Generation(f"p{i}", 0, tuple(p), token_ids=tuple(r.row.output), cycles=r.cycles)
        for i, (r, p) in enumerate(zip(results, prompts, strict=True))
    ]


def tested(cycle: Cycle) -> list[int]:
    """The draft that was tested at each emitted position, -1 where none was."""
    ids = cycle.drafted_ids[: cycle.num_accepted + 1][: len(cycle.emitted_ids)]
    return [*ids, *[-1] * (len(cycle.emitted_ids) - len(ids))]
