"""What is known of a sweep while it runs: estimates with intervals by cell, and the time left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from specbench.estimators import stats
from specbench.estimators.intervals import Interval, jackknife
from specbench.estimators.sums import CellSums, Floats, Paired
from specbench.records import Cell, Generation
from specbench.result_files.cells import SUMS
from specbench.result_files.rows import by_place, generation_sums
from specbench.settings.recipe import Block

LEAST = 3
"""Clusters from which on an interval is worth showing."""


@dataclass(slots=True)
class Tally:
    """The good generations of one cell so far, summed by cluster (batch group)."""

    gamma: int
    sums: dict[int, Floats] = field(default_factory=dict)
    tested: dict[int, Floats] = field(default_factory=dict)
    """By position, then kept by position."""
    prompts: set[str] = field(default_factory=set)
    generations: int = 0
    """Failed ones, too."""

    def add(self, group: int, generations: Sequence[Generation]) -> None:
        """Count a batch; one in which something failed is no cluster, as in the report."""
        good = [one for one in generations if one.status == "ok"]
        self.generations += len(generations)
        if len(good) < len(generations) or not good:
            return
        for one in good:
            found = generation_sums(one, self.gamma)
            own = np.array([found[name] or 0.0 for name in SUMS.values()])
            steps = np.zeros((2, self.gamma))
            for at, found_at in enumerate(by_place(one, self.gamma)[: self.gamma]):
                steps[:, at] = found_at
            self.sums[group] = self.sums.get(group, 0.0) + own
            self.tested[group] = self.tested.get(group, 0.0) + steps
            self.prompts.add(one.prompt_id)

    def over(self, groups: Sequence[int]) -> CellSums:
        """The sums of some clusters, as estimators take them."""
        table = np.array([self.sums[g] for g in groups]).reshape(len(groups), len(SUMS))
        steps = np.array([self.tested[g] for g in groups]).reshape(len(groups), 2, self.gamma)
        named = {name: table[:, place] for place, name in enumerate(SUMS)}
        return CellSums(self.gamma, tested=steps[:, 0], accepted=steps[:, 1], **named)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One cell so far, by the estimators of the report."""

    cell: Cell
    prompts: int
    alpha: Interval
    tau: Interval
    speedup: Interval


def estimate(cell: Cell, own: Tally, plain: Tally | None) -> Estimate:
    """α, τ and the speedup over the clusters that are whole; no bounds below three of them."""
    groups = sorted(own.sums)
    sums = own.over(groups)
    alpha = jackknife(stats.alpha, sums, possible=(0.0, 1.0))
    tau = jackknife(stats.tau, sums, possible=(1.0, cell.gamma + 1.0))
    common = [g for g in groups if plain is not None and g in plain.sums]
    speedup = Interval(None)
    if plain is not None and common:
        pair = Paired(own.over(common), plain.over(common))
        speedup = jackknife(stats.speedup, pair, log=True)
    return Estimate(cell, len(own.prompts), *(_bounded(one) for one in (alpha, tau, speedup)))


def _bounded(found: Interval) -> Interval:
    return found if found.clusters >= LEAST else Interval(found.value, clusters=found.clusters)


class Pace:
    """The time left: what remains of each block at its own pace, and what opens blocks.

    Cells differ in speed by design, but each group of prompts runs all cells of a block, so that
    a block's seconds per generation stay alike while it lasts.
    """

    def __init__(self, blocks: Sequence[Block], generations: int, kept: int, now: float) -> None:
        cells = sum(len(block.cells) for block in blocks) or 1
        self._left: dict[str, float] = {}
        for block in blocks:
            share = float(generations) * len(block.cells) / cells
            # Blocks run in order: what is there from before is of the first ones.
            taken = min(share, float(kept))
            self._left[block.id] = self._left.get(block.id, 0.0) + share - taken
            kept -= int(taken)
        self._paces: dict[str, _Pace] = {}
        self._last = now

    def add(self, block: str, group: int, generations: int, now: float) -> None:
        """A batch of one cell has ended; those of a group are told together."""
        passed, self._last = now - self._last, now
        self._left[block] = max(self._left.get(block, 0.0) - generations, 0.0)
        pace = self._paces.setdefault(block, _Pace(group))
        if group == pace.first:
            # Loading, warm-up and the scores of the block before come with the first group.
            pace.opening_s += passed
            pace.opened += generations
        else:
            pace.first = -1
            pace.seconds += passed
            pace.made += generations

    def close(self, block: str) -> None:
        """A block has ended, whatever it lacks."""
        self._left[block] = 0.0

    def seconds(self) -> float | None:
        """Seconds to the end; None until a second group has ended."""
        made = sum(pace.made for pace in self._paces.values())
        if not made:
            return None
        mean = sum(pace.seconds for pace in self._paces.values()) / made
        left, openings = 0.0, []
        for block, generations in self._left.items():
            pace = self._paces.get(block)
            rate = pace.seconds / pace.made if pace is not None and pace.made else mean
            left += generations * rate
            if pace is not None:
                openings.append(max(pace.opening_s - pace.opened * rate, 0.0))
        unopened = sum(n > 0 for block, n in self._left.items() if block not in self._paces)
        return left + unopened * sum(openings) / len(openings)


@dataclass(slots=True)
class _Pace:
    """What one block took."""

    first: int
    """Its first group while that one is told, then -1."""
    opening_s: float = 0.0
    opened: int = 0
    seconds: float = 0.0
    made: int = 0


def best_of(found: Mapping[str, Estimate]) -> Estimate | None:
    """The fastest cell so far; None where none was timed."""
    known = [one for one in found.values() if one.speedup.value is not None]
    return max(known, key=lambda one: one.speedup.value or 0.0, default=None)


def clock(seconds: float | None) -> str:
    """A time left as minutes and seconds, or hours; a dash where it is not known."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{whole // 60}:{whole % 60:02d}"
