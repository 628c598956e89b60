"""Settings of the engine drawn at random, and the slow, sure way to decode under them.

The reference has no cache, no batch and no tensor of laws: one text, one forward of stock attention
per law, numpy for everything else. It shares nothing with the engine but the uniforms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import models
import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from specbench.drafts.hf import HfDraft
from specbench.drafts.synthetic import SyntheticDraft
from specbench.engines.loop import RowResult
from specbench.models.lm import CausalLM
from specbench.records import Generation, Sampling

REPEATABLE = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
"""The same examples in every run: a failure in CI is a failure at home."""
FEW = settings(REPEATABLE, max_examples=10)

FAMILIES = ("llama", "llama", "mistral", "qwen3")
SIGMAS = {"near": 0.02, "far": 0.3}
KINDS = ("self", "near", "far", "other", "smaller", "larger", "synthetic")
CONTEXT = 64
Text = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One batch and all that it is decoded under."""

    family: str
    seed: int
    """Of the weights; the draws have `draws`."""
    vocab: int
    layers: int
    kind: str
    gamma: int
    sampling: Sampling
    eos: Text
    prompts: tuple[Text, ...]
    max_new: int
    room: int | None
    """Tokens that the context leaves behind the longest prompt; None: the models' own limit."""
    draws: int
    alpha: float
    """Of a synthetic draft."""

    @property
    def context(self) -> int:
        longest = max(map(len, self.prompts))
        return CONTEXT if self.room is None else min(CONTEXT, longest + self.room)

    @property
    def names(self) -> list[str]:
        """What a row's uniforms are keyed by: its prompt, however often it comes."""
        return [f"{p} {self.prompts[:i].count(p)}" for i, p in enumerate(self.prompts)]

    @property
    def target(self) -> Any:
        return weights(self.family, self.seed, self.vocab, self.layers)

    @property
    def other(self) -> Any:
        """The draft's own weights."""
        if self.kind in SIGMAS:
            return shaken(self.family, self.seed, self.vocab, self.layers, SIGMAS[self.kind])
        if self.kind in ("self", "synthetic"):
            return self.target
        more = {"smaller": -1, "larger": 3}.get(self.kind, 0)
        return weights(self.family, self.seed + 50, self.vocab + more, self.layers)

    def lm(self) -> CausalLM:
        return engine_lm(self.target)

    def draft(self, target: CausalLM) -> HfDraft:
        if self.kind == "synthetic":
            return SyntheticDraft(target, self.alpha)
        ours = target if self.kind == "self" else engine_lm(self.other)
        return HfDraft(ours, target.vocab_size)

    def run(self, rows: Sequence[int] | None = None, draws: int | None = None) -> list[RowResult]:
        """Decode as the engine does, all rows or some, in the order given."""
        chosen = range(len(self.prompts)) if rows is None else rows
        target = self.lm()
        return models.run(
            target,
            self.draft(target),
            [self.prompts[i] for i in chosen],
            self.gamma,
            sampling=self.sampling,
            max_new=self.max_new,
            eos=self.eos,
            context=self.context,
            seed=self.draws if draws is None else draws,
            names=[self.names[i] for i in chosen],
        )


@cache
def weights(family: str, seed: int, vocab: int, layers: int) -> Any:
    """A random model, float64; some are sure of themselves, some are not."""
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1 + seed % 2,
        "max_position_embeddings": CONTEXT,
        "initializer_range": (0.2, 0.5, 1.0)[seed % 3],
        "pad_token_id": None,
    }
    if family == "mistral":
        sizes["sliding_window"] = 4
    return models.build(family, seed, vocab, **sizes).double()


@cache
def shaken(family: str, seed: int, vocab: int, layers: int, sigma: float) -> Any:
    return models.noisy(weights(family, seed, vocab, layers), sigma)


@cache
def engine_lm(model: Any) -> CausalLM:
    return models.lm(model)


samplings = st.one_of(
    st.just(Sampling(0.0)),
    st.builds(
        Sampling,
        st.sampled_from([0.2, 0.7, 1.0, 3.0]),
        st.integers(0, 9),
        st.one_of(st.just(1.0), st.floats(0.01, 1.0, exclude_max=True)),
    ),
)


@st.composite
def cases(draw: st.DrawFn, sampling: st.SearchStrategy[Sampling] = samplings) -> Case:
    vocab = draw(st.sampled_from([2, 3, 5, 8, 13]))
    ids = st.integers(0, vocab - 1)
    prompt = st.lists(ids, min_size=1, max_size=draw(st.sampled_from([4, 4, 20]))).map(tuple)
    return Case(
        family=draw(st.sampled_from(FAMILIES)),
        seed=draw(st.integers(0, 5)),
        vocab=vocab,
        layers=draw(st.integers(1, 2)),
        kind=draw(st.sampled_from(KINDS)),
        gamma=draw(st.integers(0, 7)),
        sampling=draw(sampling),
        eos=tuple(draw(st.lists(st.integers(0, vocab + 1), max_size=2, unique=True))),
        prompts=tuple(draw(st.lists(prompt, min_size=1, max_size=4))),
        max_new=draw(st.integers(1, 14)),
        room=draw(st.one_of(st.none(), st.integers(1, 16))),
        draws=draw(st.integers(0, 2**63 - 1)),
        alpha=draw(st.floats(0.0, 1.0)),
    )


greedy_cases = cases(st.just(Sampling(0.0)))


class Laws:
    """Laws of one model along texts, each from a forward without a cache."""

    def __init__(self, model: Any, sampling: Sampling, ids: int) -> None:
        self.model = model
        self.sampling = sampling
        self.ids = ids
        """Ids of the law; what the model has beyond them is cut, what it lacks has none."""
        self._known: dict[Text, Any] = {}

    def logits(self, text: Text) -> Any:
        if text not in self._known:
            with torch.inference_mode():
                out = self.model(input_ids=torch.tensor([text]), use_cache=False).logits[0]
            self._known.update((text[: n + 1], row) for n, row in enumerate(out.numpy()))
        return self._known[text][: self.ids]

    def law(self, text: Text) -> Any:
        found = law_of(self.logits(text), self.sampling)
        return np.concatenate([found, np.zeros(self.ids - len(found))])


def law_of(logits: Any, sampling: Sampling) -> Any:
    """Temperature, top-k and top-p by their definitions, entry by entry."""
    if sampling.greedy:
        return np.eye(len(logits))[int(np.argmax(logits))]
    scores = logits / sampling.temperature
    if 0 < sampling.top_k < len(scores):
        scores = np.where(scores >= np.sort(scores)[-sampling.top_k], scores, -np.inf)
    p = np.exp(scores - scores.max())
    p = p / p.sum()
    if sampling.top_p >= 1:
        return p
    kept, mass = np.zeros_like(p), 0.0
    for token in sorted(range(len(p)), key=lambda i: (-p[i], i)):
        kept[token] = p[token]
        mass += p[token]
        if mass >= sampling.top_p:
            break
    return kept / kept.sum()


def pick(weight: Any, u: float) -> int:
    """The token whose share of the total the uniform falls into."""
    ends = np.cumsum(weight)
    return int(np.argmax(ends > u * ends[-1]))


@dataclass(frozen=True)
class Told:
    """One cycle, as decided."""

    drafted: Text
    accepted: int
    emitted: Text
    delivered: int
    censor: str


@dataclass(frozen=True)
class Slow:
    """One row decoded the slow way."""

    cycles: list[Told]
    output: list[int]
    finish: str
    p: Laws
    q: Laws


def told(result: RowResult | Generation) -> list[Told]:
    """The engine's cycles in the same words."""
    return [
        Told(c.drafted_ids, c.num_accepted, c.emitted_ids, c.num_delivered, c.censor)
        for c in result.cycles
    ]


def decode_slowly(case: Case, row: int) -> Slow:
    """Leviathan et al. 2023, Algorithm 1, one row, with the ends as design.md has them."""
    p = Laws(case.target, case.sampling, case.vocab)
    q = p if case.kind == "self" else Laws(case.other, case.sampling, case.vocab)
    table = case.other.config.vocab_size
    uniforms = models.streams([case.names[row]], case.max_new, case.gamma, case.draws)[0].numpy()
    text, out, cycles, finish = case.prompts[row], [], [], ""
    while not finish:
        u = uniforms[len(cycles)]
        wanted = case.gamma if max(text) < table else 0
        gamma = min(wanted, case.context - len(text) - 1)
        drafted, laws = _drafted(case, q, text, u[:gamma])
        kept, end = _kept(case, p, text, drafted, laws, u[case.gamma : case.gamma + gamma])
        emitted = drafted[:kept]
        if not end:
            here = p.law(text + emitted)
            rest = np.maximum(here - laws[kept], 0) if kept < gamma else here
            emitted += (pick(rest if rest.sum() > 1e-300 else here, u[2 * case.gamma]),)
        censor = "eos" if end and kept < gamma else "context" if gamma < wanted else ""
        delivered = emitted[: case.max_new - len(out)]
        cycles.append(Told(drafted, kept, emitted, len(delivered), censor))
        text, out = text + emitted, [*out, *delivered]
        if delivered[-1] in case.eos:
            finish = "eos"
        elif len(out) == case.max_new:
            finish = "length"
        elif len(text) == case.context:
            finish = "context"
    return Slow(cycles, out, finish, p, q)


def _drafted(case: Case, q: Laws, text: Text, u: Any) -> tuple[Text, list[Any]]:
    """The drafted tokens and the law that each was drawn from."""
    tokens: Text = ()
    laws = []
    for one in u:
        law = draft_law(case, q, text + tokens, float(one))
        laws.append(law)
        tokens += (pick(law, float(one)),)
    return tokens, laws


def draft_law(case: Case, q: Laws, text: Text, u: float) -> Any:
    """The draft's law; a synthetic one is the target's, mixed with its least likely token."""
    law = q.law(text)
    if case.kind != "synthetic":
        return law
    if case.sampling.greedy:
        # Without a law to mix, the coin is thrown for the token itself.
        return law if u < case.alpha else np.eye(case.vocab)[int(np.argmin(q.logits(text)))]
    least = int(np.argmin(law))
    share = min(1.0, (1 - case.alpha) / (1 - law[least]))
    return (1 - share) * law + share * np.eye(case.vocab)[least]


def _kept(
    case: Case, p: Laws, text: Text, drafted: Text, laws: list[Any], u: Any
) -> tuple[int, bool]:
    """How many drafts are kept, and whether an EOS among them ends the text."""
    for n, token in enumerate(drafted):
        if not u[n] < p.law(text + drafted[:n])[token] / laws[n][token]:
            return n, False
        if token in case.eos:
            return n + 1, True
    return len(drafted), False
