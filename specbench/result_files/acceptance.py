"""α, τ and the gap of a cell: from its tests by position, or from what counters determine."""

from __future__ import annotations

import numpy as np

from specbench.closed_form.inverse_law import alpha_from_tau
from specbench.estimators import stats
from specbench.estimators.intervals import Interval, closed_form_verdict, jackknife
from specbench.estimators.sums import Columns
from specbench.result_files.cells import Part

Row = dict[str, object]


def acceptance(part: Part, *, counts_alone: bool) -> Row:
    """The columns of acceptance; `counts_alone`: the engine told no cycles."""
    sums, total, gamma = part.sums, part.sums.total(), part.gamma
    delivered = stats.tau_delivered(total)[0]
    if not gamma:
        return {"tau": 1.0, "tau_closed_form": 1.0, "tau_delivered": delivered}
    if part.good["num_tested"].isna().all():
        return {**_counted(part), "tau_delivered": delivered}
    tau = jackknife(stats.tau, sums, possible=(1, gamma + 1))
    alpha = jackknife(stats.alpha, sums, possible=(0, 1))
    gap = jackknife(stats.tau_gap, sums)
    return {
        **interval_columns("alpha", alpha),
        "alpha_kind": "" if alpha.value is None else "positions" if counts_alone else "counts",
        "accepted_per_drafted": stats.accepted_per_drafted(total)[0],
        **interval_columns("tau", tau),
        "tau_delivered": delivered,
        "tau_closed_form": stats.tau_closed_form(total)[0],
        **interval_columns("tau_gap", gap),
        "closed_form_verdict": closed_form_verdict(gap, tau.value),
    }


def _counted(part: Part) -> Row:
    """Where no test is known: what accepted drafts and cycles alone determine."""
    tau = counted_tau(part)
    alpha = inverted_alpha(part, tau)
    return {
        **interval_columns("alpha", alpha),
        "alpha_kind": "" if alpha.value is None else "inverted",
        "accepted_per_drafted": accepted_share(part),
        **interval_columns("tau", tau),
    }


def interval_columns(name: str, found: Interval, scale: float = 1, unit: str = "") -> Row:
    """The columns of an estimate: value, low, high."""

    def scaled(value: float | None) -> float | None:
        return None if value is None else scale * value

    return {
        f"{name}{unit}": scaled(found.value),
        f"{name}_low{unit}": scaled(found.low),
        f"{name}_high{unit}": scaled(found.high),
    }


def counted_tau(part: Part) -> Interval:
    """1 + accepted / cycles, over all cycles, those that drafted nothing included."""
    found = _columns(part)
    return jackknife(lambda sums: 1 + sums.ratio(0, 1), found, possible=(1, part.gamma + 1))


def inverted_alpha(part: Part, tau: Interval) -> Interval:
    """The α whose closed form gives τ; none unless every cycle drafted γ tokens."""
    accepted, cycles, drafted = _columns(part).rows.sum(axis=0)
    if tau.value is None or drafted != part.gamma * cycles or not accepted <= drafted:
        return Interval(None)
    low, high = (
        None if end is None else alpha_from_tau(end, part.gamma) for end in (tau.low, tau.high)
    )
    return Interval(alpha_from_tau(tau.value, part.gamma), low, high, clusters=tau.clusters)


def accepted_share(part: Part) -> float | None:
    """Accepted / drafted."""
    share = float(_columns(part).total().ratio(0, 2)[0])
    return share if np.isfinite(share) else None


def _columns(part: Part) -> Columns:
    """Accepted, cycles and drafted of each cluster; NaN where they are not known."""
    groups = part.good.groupby("group")[["num_accepted", "num_cycles", "num_drafted"]]
    return Columns(groups.sum(min_count=1).to_numpy(np.float64))
