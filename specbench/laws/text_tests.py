"""Tests of emitted texts against the laws along them: no second sample, no model of the text.

Each token of a right sampler follows p of its own context, whatever was drafted, kept or decided
before; so what is summed here are martingales, and each sum over its standard deviation is normal.
No single one sees every fault: the log probability sees temperatures, the directed scores and the
share of over-proposed tokens see the keep test and the residual. Theory.md, section 7, V3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from specbench.laws.faults import FAULTS, Floats, Laws, Place
from specbench.laws.law_stats import Moves, Sums, uniform_test, z_test
from specbench.laws.law_tests import Measured

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
LEAST = 1e-12
"""Stands for a probability of 0 at a drafted token, so that a single one at the edge of a top-p
set, moved by rounding, does not fail a text, and many do."""


@dataclass(frozen=True, slots=True)
class Positions:
    """What happened at n positions of a text."""

    emitted: Ints
    drafted: Ints
    """The token that was tested here, or -1."""
    kept: Bools
    """Whether it was."""
    index: Ints
    """Place in the cycle, from 0."""
    bonus: Bools
    """Whether this is the token after a full accept."""
    told: bool = True
    """Whether it is known where drafts were tested; if not, a fault is looked for everywhere."""

    def __getitem__(self, part: slice) -> Positions:
        return Positions(
            self.emitted[part],
            self.drafted[part],
            self.kept[part],
            self.index[part],
            self.bonus[part],
            self.told,
        )

    @property
    def tested(self) -> Bools:
        """Whether a draft was tested here."""
        return self.drafted >= 0

    def at(self, place: Place) -> Bools:
        """The positions at which a kind of fault shows."""
        if not self.told:
            return np.full(len(self.emitted), place == "tested")
        if place == "bonus":
            return self.bonus
        return self.tested & (self.index > 0) if place == "later" else self.tested


PLAIN = (
    "token log probability",
    "draft log probability",
    "kept",
    "kept, by token",
    "over-proposed",
)


@dataclass(slots=True)
class TextSums:
    """Sums over texts, and the tests that they give."""

    plain: dict[str, Sums] = field(default_factory=lambda: {name: Sums() for name in PLAIN})
    directed: dict[str, Sums] = field(
        default_factory=lambda: {fault.name: Sums() for fault in FAULTS}
    )
    ranks: list[Floats] = field(default_factory=list)
    drafted: bool = True
    """Whether q is a draft's law. Else it is flat, and only what looks at p alone is tested."""

    def add(self, laws: Laws, seen: Positions, uniforms: Floats) -> None:
        """Add positions with their laws; `uniforms` (n,) break ties of ranks."""
        x = seen.emitted
        p_x, q_x = _at(laws.p, x), _at(laws.q, x)
        self._log_probability(laws.p, p_x)
        self.ranks.append(_ranks(laws, p_x, q_x, uniforms))
        if self.drafted:
            self._of_draft(laws, seen, p_x, q_x)

    def _of_draft(self, laws: Laws, seen: Positions, p_x: Floats, q_x: Floats) -> None:
        """What a draft's law says of the tokens."""
        x = seen.emitted
        tested = seen.tested
        if tested.any():
            d = seen.drafted[tested]
            self._draft_log_probability(laws.q[tested], d)
            p_d, q_d = _at(laws.p[tested], d), _at(laws.q[tested], d)
            kept = seen.kept[tested]
            # A draft with q = 0 was drawn from another law: u·0 < p keeps it, unless p is 0 too.
            chance = np.where(p_d > 0, np.minimum(_over(p_d, q_d), 1.0), 0.0)
            _flag(self.plain["kept"], kept, chance)
            by_token = np.minimum(_over(q_x[tested], p_x[tested]), 1.0)
            _flag(self.plain["kept, by token"], kept, by_token)
        over = laws.q > laws.p
        _flag(self.plain["over-proposed"], q_x > p_x, (laws.p * over).sum(axis=1))
        for fault in FAULTS:
            there = seen.at(fault.place)
            if there.any():
                part = Laws(laws.p[there], laws.q[there], laws.before[there])
                _direct(self.directed[fault.name], part.p, fault.law(part), x[there])

    def _log_probability(self, p: Floats, p_x: Floats) -> None:
        """ln p(x) + H; for a temperature that is off by a share b, the mean moves by b·Var ln p."""
        inside = p_x > 0
        logs = np.log(np.where(p > 0, p, 1.0))
        mean, variance, third = _centred(logs, p)
        logged = np.log(np.where(inside, p_x, 1.0))
        fault = Moves(variance, variance, _tempered(logs, mean, p))
        self.plain["token log probability"].add(
            (logged - mean)[inside], variance[inside], third[inside], _part(fault, inside)
        )

    def _draft_log_probability(self, q: Floats, d: Ints) -> None:
        logs = np.log(np.maximum(q, LEAST))
        mean, variance, third = _centred(logs, q)
        fault = Moves(variance, variance, _tempered(logs, mean, q))
        self.plain["draft log probability"].add(_at(logs, d) - mean, variance, third, fault)

    def tests(self, drift: float = 0.0) -> Iterator[Measured]:
        """Every test that the texts allow."""
        for name, sums in self.plain.items():
            if found := z_test(name, sums, drift=drift):
                yield found
        name = "ranks by q/p" if self.drafted else "ranks by p"
        if self.ranks and (found := uniform_test(name, self._all_ranks(), drift=drift)):
            yield found
        for name, sums in self.directed.items():
            if found := z_test(name, sums, drift=drift, upward=True):
                yield found

    def _all_ranks(self) -> Floats:
        return np.concatenate(self.ranks)


def _at(law: Floats, ids: Ints) -> Floats:
    found: Floats = np.take_along_axis(law, ids[:, None], axis=1)[:, 0]
    return found


def _over(a: Floats, b: Floats) -> Floats:
    """a / b, and 1 where b is 0."""
    return np.where(b > 0, a / np.where(b > 0, b, 1.0), 1.0)


def _centred(score: Floats, law: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, and second and third central moments of a score under a law."""
    mean = (law * score).sum(axis=1)
    off = score - mean[:, None]
    weighed = law * off**2
    return mean, weighed.sum(axis=1), (weighed * off).sum(axis=1)


def _tempered(logs: Floats, mean: Floats, law: Floats) -> Floats:
    """Total variation by which a small change of 1/T, as a share of it, moves a law: ½ E|ln p + H|.

    To first order: d/db of p^(1+b), normalised, is p (ln p + H).
    """
    found: Floats = (law * np.abs(logs - mean[:, None])).sum(axis=1) / 2
    return found


def _flag(sums: Sums, seen: Bools, chance: Floats) -> None:
    """A yes or no against its probability; what a fault moves it by it moves in total variation."""
    ones = np.ones(len(chance))
    variance = chance * (1 - chance)
    sums.add(seen - chance, variance, variance * (1 - 2 * chance), Moves(ones, ones / 4, ones))


def _direct(sums: Sums, p: Floats, o: Floats, x: Ints) -> None:
    """The score (o − p) / (o + p), which a fault with the law o moves up."""
    both = o + p
    score = np.where(both > 0, (o - p) / np.where(both > 0, both, 1.0), 0.0)
    mean, variance, third = _centred(score, p)
    wrong, its_variance, _ = _centred(score, o)
    fault = Moves(wrong - mean, its_variance, _distance(o, p))
    sums.add(_at(score, x) - mean, variance, third, fault)


def _distance(o: Floats, p: Floats) -> Floats:
    """Total variation at each position."""
    found: Floats = np.abs(o - p).sum(axis=1) / 2
    return found


def _part(fault: Moves, there: Bools) -> Moves:
    return Moves(fault.mean[there], fault.variance[there], fault.tv[there])


def _ranks(laws: Laws, p_x: Floats, q_x: Floats, uniforms: Floats) -> Floats:
    """Randomised ranks of the tokens in the order of q/p: uniform if x follows p.

    Brockwell (2007), "Universal Residuals".
    """
    ratio = np.where(laws.p > 0, laws.q / np.where(laws.p > 0, laws.p, 1.0), np.inf)
    own = np.where(p_x > 0, q_x / np.where(p_x > 0, p_x, 1.0), np.inf)[:, None]
    below = (laws.p * (ratio < own)).sum(axis=1)
    equal = (laws.p * (ratio == own)).sum(axis=1)
    found: Floats = np.clip(below + uniforms * equal, 0.0, 1.0)
    return found
