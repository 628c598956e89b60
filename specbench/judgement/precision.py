"""How wide the intervals are, why, and how many prompts would halve them.

The design effect is the variance over clusters against that of cycles taken as independent: above 1
prompts differ or cycles depend on each other, below 1 pairing takes more away than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from specbench.estimators import stats
from specbench.estimators.intervals import Interval, design_effect, jackknife, prompts_to_halve
from specbench.estimators.sums import CellSums, Floats
from specbench.result_files.cells import Part
from specbench.result_files.scored_cells import cell_cycles

if TYPE_CHECKING:
    import pandas as pd

MOST_CYCLES = 200_000
"""Above so many cycles the design effect is left out: each would be a cluster of its own."""
DUST = 1e-9
"""A standard error below this share of the estimate is rounding."""


@dataclass(frozen=True)
class Precision:
    """One estimate: its interval, and what would narrow it."""

    name: str
    found: Interval
    design_effect: float | None
    prompts: int | None
    """At which the interval would be half as wide."""


@dataclass(frozen=True)
class _Estimate:
    name: str
    statistic: Callable[[CellSums], Floats]
    possible: tuple[float, float] = (-math.inf, math.inf)
    log: bool = False


def precisions(folder: Path, part: Part, baseline: Part | None) -> tuple[Precision, ...]:
    """α, τ and gap of a cell; its time per token and speedup over the prompts whole in both."""
    cycles = _cycles(folder, part, own_length=part.lengths is not None)
    counts = [_Estimate("α", stats.alpha, (0, 1)), _Estimate("τ", stats.tau, (1, part.gamma + 1))]
    if part.gamma > 1:
        counts.append(_Estimate("gap", stats.tau_gap))
    found = [_precision(one, part.sums, cycles, part) for one in counts]
    if baseline is not None:
        found += _timed(folder, part, baseline)
    return tuple(found)


def _cycles(folder: Path, part: Part, *, own_length: bool = False) -> CellSums | None:
    """Every cycle of a cell as a cluster; None, without reading them, where there are too many."""
    if part.sums.cycles.sum() > MOST_CYCLES:
        return None
    return per_cycle(cell_cycles(folder, part), part.gamma, own_length=own_length)


def _precision(one: _Estimate, sums: CellSums, cycles: CellSums | None, part: Part) -> Precision:
    over = jackknife(one.statistic, sums, possible=one.possible, log=one.log)
    naive = _naive(one, cycles).se
    unit = 1.0 if one.log else abs(over.value or 0.0)
    return Precision(one.name, over, _effect(over, naive, unit), _halving(over, unit, part))


def _naive(one: _Estimate, cycles: CellSums | None) -> Interval:
    if cycles is None or cycles.clusters < 2:
        return Interval(None)
    return jackknife(one.statistic, cycles, log=one.log)


def _timed(folder: Path, part: Part, baseline: Part) -> list[Precision]:
    pair = part.paired(baseline)
    if not pair.clusters:
        return []
    one = _Estimate("L", stats.latency, log=True)
    method, plain = (_of_pair(folder, cell, part, baseline) for cell in (part, baseline))
    own, other = _naive(one, method), _naive(one, plain)
    speed = jackknife(stats.speedup, pair, log=True)
    both = None if own.se is None or other.se is None else math.hypot(own.se, other.se)
    return [
        _precision(one, pair.method, method, part),
        Precision("ln speedup", speed, _effect(speed, both, 1.0), _halving(speed, 1.0, part)),
    ]


def _of_pair(folder: Path, cell: Part, part: Part, baseline: Part) -> CellSums | None:
    """The cycles of the clusters that are whole in both cells."""
    if cell.sums.cycles.sum() > MOST_CYCLES:
        return None
    sizes, others = part.whole.align(baseline.whole, join="inner")
    common = sizes.index[(sizes == others).to_numpy()]
    table = cell_cycles(folder, cell)
    return per_cycle(table[table["group"].isin(common)], cell.gamma)


def _effect(over: Interval, naive: float | None, unit: float) -> float | None:
    if over.se is None or naive is None or naive <= DUST * unit:
        return None
    return design_effect(over.se, naive)


def _halving(over: Interval, unit: float, part: Part) -> int | None:
    """Prompts, where a cluster may be a batch of several."""
    known = over.se is not None and over.se > DUST * unit
    clusters = prompts_to_halve(over.clusters) if known else None
    if clusters is None:
        return None
    return math.ceil(clusters * part.good["prompt_id"].nunique() / part.sums.clusters)


def per_cycle(cycles: pd.DataFrame, gamma: int, *, own_length: bool = False) -> CellSums:
    """Sums in which every cycle is a cluster of its own."""
    kept, tested = (cycles[n].to_numpy(np.float64) for n in ("num_accepted", "num_tested"))
    drafted, seconds = (cycles[n].to_numpy(np.float64) for n in ("gamma", "seconds"))
    censored, timed = cycles["censor"].to_numpy() != "", np.isfinite(seconds)
    delivered = cycles["num_delivered"].to_numpy(np.float64)
    place, zero = np.arange(gamma), np.zeros(len(cycles))
    return CellSums(
        gamma=gamma,
        tested=(place < tested[:, None]).astype(np.float64),
        accepted=(place < kept[:, None]).astype(np.float64),
        cycles=np.ones(len(cycles)),
        undrafted=((drafted == 0) & ~censored & (gamma > 0)).astype(np.float64),
        drafted=drafted,
        full_accept=((kept == drafted) & (drafted > 0)).astype(np.float64),
        censored=censored.astype(np.float64),
        tokens=delivered,
        prefill_s=zero,
        live_s=np.where(timed, seconds, 0.0),
        share_s=zero,
        draft_s=zero,
        verify_s=zero,
        other_s=zero,
        timed_cycles=timed.astype(np.float64),
        timed_tokens=np.where(timed, delivered, 0.0),
        lengths=np.equal.outer(drafted, np.arange(gamma + 1)).astype(float) if own_length else None,
    )
