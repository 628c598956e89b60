"""Estimators over sums: what a cell's counts and times say.

A cell's generations are summed by cluster (the batch that ran together, over all its repeats).
Every estimator here takes such sums and gives one number a row, NaN where it is undefined: on
`CellSums.total` the estimate, on `CellSums.leave_one_out` what the jackknife needs.
"""

from __future__ import annotations

import numpy as np

from specbench.closed_form import theory
from specbench.estimators.sums import CellSums, Floats, Paired, from_accepted, ratio

__all__ = [
    "CellSums",
    "Floats",
    "Paired",
    "accepted_per_drafted",
    "alpha",
    "drafted_at_least",
    "from_accepted",
    "gap_identity",
    "hazards",
    "latency",
    "latency_e2e",
    "ratio",
    "speedup",
    "speedup_e2e",
    "survival",
    "tau",
    "tau_closed_form",
    "tau_delivered",
    "tau_gap",
    "undrafted_share",
]


def alpha(sums: CellSums) -> Floats:
    """Share of tested drafts that were kept, from 0 to 1.

    Returns
    -------
    One value a row: Σ accepted / Σ tested, the maximum-likelihood estimate under independent
    accepts and the α that belongs in the closed form.

    References
    ----------
    Leviathan, Kalman, Matias (2023), "Fast Inference from Transformers via Speculative
    Decoding", definition 3.1; docs/theory, estimators.

    Examples
    --------
    >>> cell = from_accepted([4, 0, 2, 1, 4, 3, 0, 4], gamma=4)
    >>> round(float(alpha(cell.total())[0]), 4)  # 18 / 23
    0.7826
    """
    return ratio(sums.accepted.sum(axis=1), sums.tested.sum(axis=1))


def hazards(sums: CellSums) -> Floats:
    """Share kept at each position among the cycles that tested it, [rows, gamma].

    Examples
    --------
    >>> cell = from_accepted([4, 0, 2, 1, 4, 3, 0, 4], gamma=4)
    >>> hazards(cell.total())[0].round(3).tolist()
    [0.75, 0.833, 0.8, 0.75]
    """
    return ratio(sums.accepted, sums.tested)


def survival(sums: CellSums) -> Floats:
    """Chance that the first i drafts are kept, i = 0 … gamma, [rows, gamma + 1].

    The product-limit estimate Π ĥ_j: a cycle cut by EOS or a context limit counts at the
    positions that it tested. Zero after a position at which nothing was kept; NaN from a
    position that was never tested while the chance of reaching it is above zero.

    References
    ----------
    Kaplan, Meier (1958), "Nonparametric Estimation from Incomplete Observations".

    Examples
    --------
    >>> cell = from_accepted([2, 0], gamma=2)
    >>> survival(cell.total())[0].tolist()
    [1.0, 0.5, 0.5]
    """
    kept = hazards(sums)
    dead = np.logical_or.accumulate(kept == 0, axis=1)
    chance = np.cumprod(np.where(dead, 0.0, kept), axis=1)
    return np.hstack([np.ones((len(chance), 1)), chance])


def undrafted_share(sums: CellSums) -> Floats:
    """Share of cycles that drafted nothing, among those not cut before the first draft."""
    first = sums.tested[:, 0] if sums.gamma else np.zeros_like(sums.undrafted)
    return np.nan_to_num(ratio(sums.undrafted, sums.undrafted + first))


def tau(sums: CellSums) -> Floats:
    """Tokens emitted per cycle as decided, from 1 to gamma + 1.

    The product-limit sum Σ_i S_i of `survival`, mixed with 1 by the share of cycles that
    drafted nothing. Where no cycle is censored it is Σ(N + 1) / cycles, and so it is always where
    the draft chose its own length: that length tells of what is to come, so a short proposal is
    no censored long one.

    Returns
    -------
    One value a row; NaN where a position was never at risk while survival is above zero.

    References
    ----------
    Kaplan, Meier (1958); docs/theory, ends of sequences.

    Examples
    --------
    >>> cell = from_accepted([4, 0, 2, 1, 4, 3, 0, 4], gamma=4)
    >>> round(float(tau(cell.total())[0]), 12)  # 26 tokens in 8 cycles
    3.25
    """
    if sums.lengths is not None:
        return 1 + ratio(sums.accepted.sum(axis=1), sums.cycles)
    return _mixed(sums, survival(sums).sum(axis=1))


def tau_closed_form(sums: CellSums) -> Floats:
    """Tokens per cycle that independent accepts at `alpha` would give.

    (1 − α^(γ+1)) / (1 − α), mixed with 1 by the share of cycles that drafted nothing; where the
    draft chose its own length, mixed over the lengths by their share of the cycles.

    References
    ----------
    Leviathan, Kalman, Matias (2023), equation 1.

    Examples
    --------
    >>> cell = from_accepted([4, 0, 2, 1, 4, 3, 0, 4], gamma=4)
    >>> round(float(tau_closed_form(cell.total())[0]), 4)
    3.2495
    """
    if sums.lengths is not None:
        powers = np.power.outer(alpha(sums), np.arange(sums.gamma + 1))
        share = drafted_at_least(sums)
        mixed: Floats = np.sum(np.where(share == 0, 0.0, share * powers), axis=1)
        return mixed
    values = [theory.tau(float(a), sums.gamma) if a == a else np.nan for a in alpha(sums)]
    return _mixed(sums, np.array(values, dtype=np.float64))


def drafted_at_least(sums: CellSums) -> Floats:
    """Share of cycles that drafted i tokens or more, i = 0 … gamma, [rows, gamma + 1].

    1 throughout where the draft has no say in its length.
    """
    if sums.lengths is None:
        return np.ones((sums.clusters, sums.gamma + 1))
    longer = np.cumsum(sums.lengths[:, ::-1], axis=1)[:, ::-1]
    return ratio(longer, longer[:, :1])


def _mixed(sums: CellSums, drafted: Floats) -> Floats:
    """Tokens per cycle over cycles with drafts (as given) and without (1)."""
    share = undrafted_share(sums)
    return np.where(share == 1, 1.0, (1 - share) * drafted + share)


def tau_gap(sums: CellSums) -> Floats:
    """Tokens per cycle above the closed form (below: negative).

    Examples
    --------
    >>> cell = from_accepted([4, 0, 2, 1, 4, 3, 0, 4], gamma=4)
    >>> round(float(tau_gap(cell.total())[0]) * 1119364, 3)  # 513 / 1119364
    513.0
    """
    return tau(sums) - tau_closed_form(sums)


def gap_identity(sums: CellSums) -> Floats:
    """The gap from the share of full accepts alone: α (α^γ − S_γ) / (1 − α).

    An identity for every trace of one γ in which no cycle was censored or drafted nothing;
    NaN where one was, and where the draft chose its own length.

    Examples
    --------
    >>> cell = from_accepted([4, 0, 2, 1, 4, 3, 0, 4], gamma=4)
    >>> round(float(gap_identity(cell.total())[0]) * 1119364, 3)
    513.0
    """
    kept = alpha(sums)
    if sums.lengths is not None:
        return np.full(sums.clusters, np.nan)
    full = ratio(sums.full_accept, sums.cycles)
    gap = np.where(kept == 1, 0.0, ratio(kept * (kept**sums.gamma - full), 1 - kept))
    return np.where((sums.censored > 0) | (sums.undrafted > 0), np.nan, gap)


def tau_delivered(sums: CellSums) -> Floats:
    """Delivered tokens per cycle: what latency sees, after clipping at a length limit.

    Over the cycles that are timed, where these are known: a prompt pass may give a token, too.
    """
    timed = ratio(sums.tokens_timed, sums.cycles_timed)
    return np.where(np.isfinite(timed), timed, ratio(sums.tokens, sums.cycles))


def accepted_per_drafted(sums: CellSums) -> Floats:
    """Kept drafts per drafted token, which served engines call acceptance rate; not α.

    Examples
    --------
    >>> cell = from_accepted([4, 0, 2, 1, 4, 3, 0, 4], gamma=4)
    >>> float(accepted_per_drafted(cell.total())[0])  # 18 / 32
    0.5625
    """
    return ratio(sums.accepted.sum(axis=1), sums.drafted)


def latency(sums: CellSums) -> Floats:
    """Decode seconds per delivered token: Σ live time / Σ tokens that came in it."""
    return ratio(sums.live_s, sums.tokens_timed)


def latency_e2e(sums: CellSums) -> Floats:
    """Seconds per delivered token with the prefill."""
    return ratio(sums.live_s + sums.prefill_s, sums.tokens)


def speedup(pair: Paired) -> Floats:
    """Baseline latency over the cell's, ratios of totals; 2 is twice as fast."""
    return ratio(latency(pair.baseline), latency(pair.method))


def speedup_e2e(pair: Paired) -> Floats:
    """The speedup with both prefills."""
    return ratio(latency_e2e(pair.baseline), latency_e2e(pair.method))
