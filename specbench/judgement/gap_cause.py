"""Why τ is not what the closed form says, in words.

Where the texts were scored, the parts of the gap say it. From kept and tested counts alone the gap
splits in two, no finer: what comes from prompts that differ in α, and the rest, from within
prompts. Whether the rest is a fall with the position or runs of kept drafts is told by the slope
of the hazards (theory, gap decomposition).
"""

from __future__ import annotations

import numpy as np

from specbench.estimators import stats
from specbench.estimators.decompose import GapParts
from specbench.estimators.intervals import jackknife_error, t_quantile
from specbench.estimators.sums import CellSums, Floats
from specbench.judgement.effects import slope

NOT_FOUND = "cause not found with these prompts"
_LOWER = {
    "order": "kept drafts come in runs within a prompt",
    "remainder": "values vary within a prompt",
    "noise": "luck of the accept draws",
}
_HIGHER = _LOWER | {"order": "rejections are spread out within a prompt"}


def text_cause(parts: GapParts, sums: CellSums) -> str:
    """The largest part of the gap that has its sign and is not chance, in words.

    The gap is that of τ as decided, so ends of texts are no cause of it.
    """
    gap = _one(stats.tau_gap(sums.total()))
    found = {
        name: abs(part.value)
        for name, part in parts.parts.items()
        if name != "truncation"
        and part.value is not None
        and part.low is not None
        and part.high is not None
        and not part.low <= 0 <= part.high
        and part.value * gap > 0
    }
    if not found:
        return NOT_FOUND
    largest = max(found, key=lambda name: found[name])
    if largest == "between":
        return _differ(sums)
    return (_LOWER if gap < 0 else _HIGHER)[largest]


def gap_cause(sums: CellSums) -> str:
    """The largest part of the gap that is larger than its error, in words."""
    if sums.clusters < 3:
        return NOT_FOUND
    gap = _one(stats.tau_gap(sums.total()))
    between, within, fall = (
        _estimate(statistic, sums) for statistic in (_between, _within, _slope)
    )
    parts = {"between": between, "within": within}
    found = {n: p for n, (p, error) in parts.items() if abs(p) > error and p * gap > 0}
    if not found:
        return NOT_FOUND
    if max(found, key=lambda name: abs(found[name])) == "between":
        return _differ(sums)
    if -fall[0] > fall[1]:
        kept = _known(stats.hazards(sums.total())[0])
        return f"α falls with position ({kept[0]:.3f} to {kept[-1]:.3f})"
    return "kept drafts come in runs within a prompt"


def _one(values: Floats) -> float:
    return float(values[0])


def _estimate(statistic: object, sums: CellSums) -> tuple[float, float]:
    """A statistic of the clusters and the half-width of its jackknife interval."""
    assert callable(statistic)
    others = np.array([statistic(sums.drop(row)) for row in range(sums.clusters)])
    return float(statistic(sums)), t_quantile(sums.clusters - 1) * jackknife_error(others)


def _mixture(sums: CellSums) -> float:
    """Tokens per cycle if each prompt kept drafts independently at its own α.

    Each α comes from few tests, and the closed form is convex: its noise would count as
    differences between prompts, so its first-order effect is taken off.
    """
    tested = sums.tested.sum(axis=1)
    used = tested > 0
    alpha = sums.accepted.sum(axis=1)[used] / tested[used]
    weight = sums.cycles[used] / sums.cycles[used].sum()
    pooled = _one(stats.alpha(sums.total()))
    share = stats.drafted_at_least(sums)[used]
    order = np.arange(2, sums.gamma + 1)
    bend = share[:, 2:] @ (order * (order - 1) * pooled ** (order - 2))
    noise = bend / 2 * pooled * (1 - pooled) / tested[used]
    closed = np.sum(share * alpha[:, None] ** np.arange(sums.gamma + 1), axis=1)
    return float(np.sum(weight * (closed - noise)))


def _between(sums: CellSums) -> float:
    return _mixture(sums) - _one(stats.tau_closed_form(sums.total()))


def _within(sums: CellSums) -> float:
    return _one(stats.tau(sums.total())) - _mixture(sums)


def _slope(sums: CellSums) -> float:
    """Change of the hazard per position; 0 where there is one."""
    return float(np.nan_to_num(_one(slope(sums.total()))))


def _differ(sums: CellSums) -> str:
    low, high = _spread(sums)
    return f"prompts differ (α from {low:.3f} to {high:.3f})"


def _known(values: Floats) -> Floats:
    known: Floats = values[np.isfinite(values)]
    return known


def _spread(sums: CellSums) -> tuple[float, float]:
    """The α of the middle four fifths of prompts: single prompts are too thin to name."""
    low, high = np.quantile(_known(stats.alpha(sums)), [0.1, 0.9])
    return float(low), float(high)
