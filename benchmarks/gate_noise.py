"""Made-up runs on a machine whose speed varies as a measured one's did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from specbench.estimators.changes import Runs
from specbench.estimators.sums import CellSums, Paired
from specbench.result_files.results import load_run, read_cycles

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

BLOCK_S = 10.0
"""Pieces in which the measured course of a machine's speed is put together anew."""


@dataclass(frozen=True)
class Trace:
    """How much longer than usual each cycle of a real run took, in the order of measuring."""

    slower: Floats
    """[cycles]: seconds over the median of cycles of the same γ."""
    start: Floats
    """[cycles]: usual seconds until then."""

    @property
    def seconds(self) -> float:
        """Usual seconds of the whole run."""
        return float(self.start[-1])

    def course(self, usual: Floats, rng: np.random.Generator) -> Floats:
        """The slowness of cycles that take so long as a rule, one after another.

        Pieces of the trace are drawn at random, so that what lasts for seconds stays together.
        """
        at = np.cumsum(usual) - usual / 2
        pieces = int(at[-1] / BLOCK_S) + 1
        begin = rng.uniform(0, max(self.seconds - BLOCK_S, 0.0), pieces)
        place = (at / BLOCK_S).astype(np.int64)
        wanted = begin[place] + (at - place * BLOCK_S) % self.seconds
        found = np.searchsorted(self.start, wanted, side="right") - 1
        return self.slower[np.clip(found, 0, len(self.slower) - 1)]


def read_trace(folder: Path) -> Trace:
    """The course of the machine's speed during a run."""
    names = ["cell", "prompt_id", "repeat", "index", "gamma", "draft_s", "verify_s", "other_s"]
    cycles = pd.concat(list(read_cycles(folder, names)))
    rows = load_run(folder).generations
    order = rows[["cell", "prompt_id", "repeat", "gamma"]].rename(columns={"gamma": "asked"})
    order = order.assign(at=np.arange(len(order)))
    found = cycles.merge(order, on=["cell", "prompt_id", "repeat"]).sort_values(["at", "index"])
    found = found[found["gamma"] == found["asked"]]
    taken = found[["draft_s", "verify_s", "other_s"]].sum(axis=1)
    usual = taken.groupby(found["gamma"]).transform("median").to_numpy()
    return Trace(taken.to_numpy() / usual, np.cumsum(usual) - usual)


@dataclass(frozen=True)
class Pair:
    """What a pair costs as a rule, in seconds, and how well the draft does."""

    step_s: float = 0.0155
    c: float = 0.09
    v: float = 1.07
    other: float = 0.016
    """Of a step."""
    overhead: float = 0.0
    """More of it in cycles that draft."""
    alpha: float = 0.83
    spread: float = 0.3
    """How far prompts differ in α, on the logit scale."""

    def phases(self, gamma: int) -> Floats:
        """Draft, verify and other of a cycle, in seconds."""
        if not gamma:
            return self.step_s * np.array([0.0, 1.0, self.other])
        return self.step_s * np.array([gamma * self.c, self.v, self.other + self.overhead])

    def slowed(self, loss: float, gamma: int) -> Pair:
        """The pair with so much time outside the models that the speedup is less by a share.

        Of the limits on changes only that on the speedup can see it.
        """
        more = float(self.phases(gamma).sum()) * (1 / (1 - loss) - 1)
        return replace(self, overhead=self.overhead + more / self.step_s)


@dataclass(frozen=True)
class Texts:
    """Drafts kept in each cycle of each generation (a prompt in a repeat)."""

    gamma: int
    prompt: Whole
    """[generations]."""
    kept: Whole
    """[generations, tokens]: −1 behind the end."""
    tokens: int

    @property
    def cycles(self) -> Whole:
        """[generations]."""
        return (self.kept >= 0).sum(axis=1)


def draw_texts(
    pair: Pair, gamma: int, prompts: int, repeats: int, tokens: int, rng: np.random.Generator
) -> Texts:
    """The texts of a run; another run of the same seed writes the same."""
    logit = np.log(pair.alpha / (1 - pair.alpha)) + pair.spread * rng.standard_normal(prompts)
    prompt = np.tile(np.arange(prompts), repeats)
    miss = 1 / (1 + np.exp(logit))[prompt, None]
    kept = np.minimum(rng.geometric(np.broadcast_to(miss, (len(prompt), tokens))) - 1, gamma)
    before = np.cumsum(kept + 1, axis=1) - (kept + 1)
    return Texts(gamma, prompt, np.where(before < tokens, kept, -1), tokens)


def measure(
    pairs: Sequence[Pair], texts: Texts, trace: Trace, rng: np.random.Generator
) -> list[Paired]:
    """One run of a pair, or one of several in turns, as sums by prompt.

    Of each generation plain decoding and the draft run one after the other, in an order that is
    drawn, as in a sweep.
    """
    count, arms = len(texts.prompt), 2 * len(pairs)
    order = np.argsort(rng.random((count, arms)), axis=1)
    length = np.tile(np.column_stack([np.full(count, texts.tokens), texts.cycles]), len(pairs))
    usual = np.array([p.phases(g).sum() for p in pairs for g in (0, texts.gamma)])
    arm = order.ravel()
    many = np.take_along_axis(length, order, axis=1).ravel()
    owner = np.repeat(np.arange(count * arms), many)
    course = trace.course(np.repeat(usual[arm], many), rng)
    slow = np.bincount(owner, course, count * arms)
    by_arm = np.zeros((count, arms))
    np.put_along_axis(by_arm, order, slow.reshape(count, arms), axis=1)
    return [
        Paired(
            _sums(pair, texts, texts.gamma, by_arm[:, 2 * n + 1]),
            _sums(pair, texts, 0, by_arm[:, 2 * n]),
        )
        for n, pair in enumerate(pairs)
    ]


def _sums(pair: Pair, texts: Texts, gamma: int, slow: Floats) -> CellSums:
    """Sums by prompt of one arm; `slow`: the cycles' slowness summed over each generation."""
    size = int(texts.prompt.max()) + 1

    def summed(values: Floats | Whole) -> Floats:
        return np.bincount(texts.prompt, values, size).astype(np.float64)

    times: Mapping[str, Floats] = {
        name: summed(seconds * slow)
        for name, seconds in zip(
            ("draft_s", "verify_s", "other_s"), pair.phases(gamma), strict=True
        )
    }
    live = times["draft_s"] + times["verify_s"] + times["other_s"]
    tokens = summed(np.full(len(texts.prompt), texts.tokens))
    cycles = summed(texts.cycles) if gamma else tokens
    zero = np.zeros(size)
    steps = range(gamma)
    return CellSums(
        gamma=gamma,
        tested=np.array([summed((texts.kept >= p).sum(axis=1)) for p in steps]).T.reshape(size, -1),
        accepted=np.array([summed((texts.kept > p).sum(axis=1)) for p in steps]).T.reshape(
            size, -1
        ),
        cycles=cycles,
        undrafted=zero,
        drafted=cycles * gamma,
        full_accept=summed((texts.kept == gamma).sum(axis=1)) if gamma else zero,
        censored=zero,
        tokens=tokens,
        prefill_s=zero,
        live_s=live,
        share_s=live,
        **times,
    )


def two_runs(
    old: Pair, new: Pair, texts: Texts, trace: Trace, rng: np.random.Generator, *, turns: bool
) -> Runs:
    """Two runs of the same texts: one after another, or in turns."""
    if turns:
        before, after = measure([old, new], texts, trace, rng)
    else:
        (before,), (after,) = (measure([pair], texts, trace, rng) for pair in (old, new))
    return Runs(before, after)
