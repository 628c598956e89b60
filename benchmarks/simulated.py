"""Traces with a known law, for coverage, size and power: many repetitions at once.

A draft is kept with the chance whose logit is base + prompt + context + drift × depth. `prompt` is
drawn once a prompt, `context` runs along the text as an AR(1) series, depth counts from 0 inside
the cycle. One row is one prompt; rows of all repetitions lie in one array.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbench.estimators.scored_text import Texts
from specbench.estimators.sums import CellSums, Floats

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Law:
    """How accepts depart from independence; nothing by default."""

    base: float = 0.9
    prompt_sd: float = 0.0
    context_sd: float = 0.0
    serial: float = 0.0
    drift: float = 0.0


@dataclass(frozen=True)
class Cycles:
    """Kept and tested drafts by row and cycle, [rows, cycles]; `live` marks those that ran."""

    gamma: int
    kept: Ints
    tested: Ints
    live: npt.NDArray[np.bool_]
    censored: npt.NDArray[np.bool_]
    keep: Floats
    """[rows, tokens]: chance that a draft is kept at depth 0, along the text and past its end."""

    def rows(self, which: slice) -> Cycles:
        """Some rows: one repetition."""
        parts = (self.kept, self.tested, self.live, self.censored, self.keep)
        return Cycles(self.gamma, *(part[which] for part in parts))

    def sums(self) -> CellSums:
        """Sums by row, each a cluster."""
        place = np.arange(self.gamma)
        live = self.live[:, :, None]
        count = self.live.sum(axis=1).astype(np.float64)
        full = (self.kept == self.gamma) & self.live
        nought = np.zeros(len(count))
        return CellSums(
            gamma=self.gamma,
            tested=((place < self.tested[:, :, None]) & live).sum(axis=1).astype(np.float64),
            accepted=((place < self.kept[:, :, None]) & live).sum(axis=1).astype(np.float64),
            cycles=count,
            undrafted=nought,
            drafted=count * self.gamma,
            full_accept=full.sum(axis=1).astype(np.float64),
            censored=(self.censored & self.live).sum(axis=1).astype(np.float64),
            tokens=((self.kept + 1) * self.live).sum(axis=1).astype(np.float64),
            **dict.fromkeys(
                ("prefill_s", "live_s", "share_s", "draft_s", "verify_s", "other_s"), nought
            ),
        )

    def texts(self, tokens: int) -> Texts:
        """Keep probabilities along texts of one length (of a law without drift).

        Not cut where the last cycle ended: a cycle likes to end at a low probability, so that
        such an end would look like order.
        """
        return Texts(self.keep[:, :tokens], np.full(len(self.keep), tokens))

    def traces(self) -> list[tuple[Ints, Ints]]:
        """Kept and tested drafts of each row's cycles."""
        return [
            (kept[live], tested[live])
            for kept, tested, live in zip(self.kept, self.tested, self.live, strict=True)
        ]


def overlaps(law: Law, rng: np.random.Generator, rows: int, tokens: int) -> Floats:
    """Logit of the keep chance at depth 0 along each text, [rows, tokens]."""
    logit = np.full((rows, tokens), law.base)
    logit += law.prompt_sd * rng.standard_normal((rows, 1))
    if law.context_sd:
        state = rng.standard_normal(rows)
        fresh = np.sqrt(1 - law.serial**2)
        for t in range(tokens):
            logit[:, t] += law.context_sd * state
            state = law.serial * state + fresh * rng.standard_normal(rows)
    return logit


def simulate(
    law: Law,
    rng: np.random.Generator,
    rows: int,
    *,
    gamma: int = 5,
    cycles: int = 40,
    lengths: Ints | None = None,
    limit: int | None = None,
) -> Cycles:
    """Run cycles: a fixed number of them, or until each text's last token is out.

    That token is an EOS, which ends testing, unless `limit` comes first, which does not.
    """
    eos = np.zeros(rows, dtype=bool)
    if lengths is not None:
        eos = np.ones(rows, dtype=bool) if limit is None else lengths <= limit
        lengths = lengths if limit is None else np.minimum(lengths, limit)
        cycles = int(lengths.max())
    reach = cycles * (gamma + 1) if lengths is None else cycles
    logit = np.pad(overlaps(law, rng, rows, reach), ((0, 0), (0, gamma)))
    depth, row, at = np.arange(gamma), np.arange(rows)[:, None], np.zeros(rows, dtype=np.int64)
    left = np.full(rows, reach + gamma + 1) if lengths is None else lengths.copy()
    out: list[tuple[Ints, ...]] = []
    while len(out) < cycles and (left > 0).any():
        live = left > 0
        start = np.minimum(at, reach)
        chance = 1 / (1 + np.exp(-(logit[row, start[:, None] + depth] + law.drift * depth)))
        bits = rng.random((rows, gamma)) < chance
        decided = np.cumprod(bits, axis=1).sum(axis=1)
        ended = (decided >= left) & eos
        kept = np.where(ended, left, decided)
        tested = np.where(ended, left, np.minimum(decided + 1, gamma))
        out.append((kept, tested, live, ended & (kept < gamma)))
        at += decided + 1
        if lengths is not None:
            left = left - decided - 1
    kept, tested, live, censored = (np.stack(part, axis=1) for part in zip(*out, strict=True))
    keep = 1 / (1 + np.exp(-logit))
    return Cycles(gamma, kept, tested, live.astype(bool), censored.astype(bool), keep)
