"""Sets of counts as rows of the summary, with intervals where requests carry them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from specbench.calculator.counter_checks import check_counts
from specbench.calculator.counter_file import Counters
from specbench.calculator.counters import Answer, answer
from specbench.closed_form import theory
from specbench.errors import visible
from specbench.estimators.intervals import jackknife
from specbench.estimators.sums import Columns, Floats
from specbench.importers import doubts
from specbench.importers.model import Group, Request, Row
from specbench.importers.times import bounds, speed, times, weighed
from specbench.records import cell_id

ALL = "all"
SUMMED = ("num_output_tokens", "num_cycles", "num_drafted", "num_tested", "num_accepted")
COUNTED = (*SUMMED[1:], "num_full_accept")
VARY = "draft lengths vary: no gamma gives alpha, which needs num_tested"


@dataclass(frozen=True, slots=True)
class Made:
    """A cell: its keys, rows of the summary, and what is to be said of it."""

    id: str
    keys: Row
    rows: list[Row]
    group: Group
    remarks: list[str]


def made(group: Group, baseline: Group | None = None) -> Made:
    """The cell of a group, and its rows: over all, then by category."""
    keys: Row = {
        "draft": visible(group.draft),
        "gamma": group.gamma,
        "temperature": group.temperature,
        "top_k": None,
        "top_p": None,
        "batch_size": group.batch_size,
        "context_length": None,
    }
    whole = _totals(group)
    found = answer(whole)
    if keys["gamma"] is None and not group.lengths_vary:
        keys["gamma"] = found.found.gamma
    rows = [{**_row(group, whole, found, group.requests, baseline), "category": ALL}]
    remarks = doubts.of_group(group, rows[0])
    if baseline is not None and baseline is not group:
        remarks += doubts.of_baseline(group, baseline)
    remarks += [
        # The most that a cycle drafts is told: asking for it again would lead nowhere.
        VARY if group.gamma and group.lengths_vary and one.startswith("alpha needs gamma") else one
        for one in found.remarks
    ]
    for name, part in _parts(group).items():
        own = replace(group, columns={})
        requests = tuple(one for one in group.requests if one.category == name)
        told = answer(part)
        row = _row(own, part, told, requests, baseline)
        rows.append({**row, "category": name})
        remarks += [f"{name}: {one}" for one in told.remarks if one not in found.remarks]
    name = cell_id(keys)
    return Made(name, keys, [{**row, "cell": name, **keys} for row in rows], group, remarks)


def _parts(group: Group) -> Mapping[str, Counters]:
    """Totals by category, in the order of the file."""
    if group.categories:
        return {name: part for name, part in group.categories.items() if name != ALL}
    names = dict.fromkeys(one.category for one in group.requests)
    if len(names) < 2 or "" in names:
        return {}
    return {
        name: _summed(group, [one for one in group.requests if one.category == name])
        for name in names
        if name != ALL
    }


def _totals(group: Group) -> Counters:
    return group.counters or _summed(group, group.requests)


def _summed(group: Group, requests: Sequence[Request]) -> Counters:
    """The sums of the requests that did not fail, of what each of them has."""
    good = [one for one in requests if one.status == "ok"]
    counts = {
        name: sum(one.counts[name] for one in good)
        for name in COUNTED
        if good and all(name in one.counts for one in good)
    }
    if group.gamma is not None:
        counts["gamma"] = group.gamma
    if group.lengths_vary:
        # Drafted tokens that happen to be a multiple of the cycles would be taken for a γ.
        counts.pop("gamma", None)
        counts.pop("num_drafted", None)
        counts.pop("num_full_accept", None)
    check_counts(group.place, counts, {})
    return Counters(group.place, counts=counts)


def _row(
    group: Group,
    totals: Counters,
    found: Answer,
    requests: Sequence[Request],
    baseline: Group | None,
) -> Row:
    good = [one for one in requests if one.status == "ok"]
    row: Row = {"status": _status(group, requests, good)}
    row.update({name: value for name, value in group.columns.items() if value is not None})
    row.update(_counts(group, good))
    row.update(_acceptance(group, found, good))
    row.update(times(good))
    row.update(speed(row, good, baseline, plain=found.found.gamma == 0))
    return row


def _status(group: Group, requests: Sequence[Request], good: Sequence[Request]) -> str:
    if group.columns.get("num_prompts") == 0 or (requests and not good):
        return "error"
    failed = group.columns.get("num_failed") or len(good) < len(requests)
    return "partial" if failed else "ok"


def _counts(group: Group, good: Sequence[Request]) -> Row:
    """Sums over requests, where every one has the count."""
    row: Row = {}
    if group.requests:
        row["num_prompts"] = len({one.prompt_id for one in good})
        row["num_failed"] = len([one for one in group.requests if one.status != "ok"])
    for name in SUMMED:
        if good and all(name in one.counts for one in good):
            row[name] = sum(one.counts[name] for one in good)
    return row


def _acceptance(group: Group, answered: Answer, good: Sequence[Request]) -> Row:
    """α, τ and the gap as far as the counts determine them; empty at γ = 0 but for τ."""
    found, cells = answered.found, answered.cells()
    row: Row = {n: cells[n] for n in COUNTED if cells[n] is not None}
    if found.gamma == 0:
        one = None if found.counts.get("num_cycles") == 0 else 1.0
        return {**row, "tau": one, "tau_closed_form": one}
    own = found.alpha_kind not in (None, "given")
    row |= {
        "alpha": cells["alpha"] if own else None,
        "alpha_kind": found.alpha_kind if own else "",
        "accepted_per_drafted": _per_drafted(cells, good),
        "tau": cells["tau"],
        "tau_closed_form": cells["tau_closed_form"] if own else None,
        "tau_gap": cells["tau_gap"] if own else None,
    }
    if group.lengths_vary and found.alpha is not None and cells["tau"] is not None:
        row.update(_mixed(float(found.alpha), float(cells["tau"]), good))
    tested = own and found.alpha_kind == "counts"
    row.update(_intervals(found.gamma, _longest(group, found.gamma, good), tested, good))
    tokens, cycles = (_total(good, name) for name in ("num_output_tokens", "num_cycles"))
    if tokens and cycles and group.counters is None and all(r.whole_s is not None for r in good):
        row["tau_delivered"] = float(Fraction(tokens, cycles))
    return row


def _mixed(alpha: float, tau: float, good: Sequence[Request]) -> Row:
    """The closed form over the lengths that were drafted, each with its share of the cycles."""
    cycles: dict[int, int] = {}
    for one in good:
        for (drafted, _), number in (one.steps or {}).items():
            cycles[drafted] = cycles.get(drafted, 0) + number
    total = sum(cycles.values())
    if not total or any(one.steps is None for one in good):
        return {}
    closed = sum(number * float(theory.tau(alpha, g)) for g, number in cycles.items()) / total
    return {"tau_closed_form": closed, "tau_gap": tau - closed}


def _per_drafted(cells: Mapping[str, object], good: Sequence[Request]) -> object:
    drafted, accepted = (_total(good, name) for name in ("num_drafted", "num_accepted"))
    if drafted and accepted is not None:
        return accepted / drafted
    return cells["accepted_per_drafted"]


def _total(good: Sequence[Request], name: str) -> int | None:
    if not good or any(name not in one.counts for one in good):
        return None
    return sum(one.counts[name] for one in good)


def _longest(group: Group, gamma: int | None, good: Sequence[Request]) -> int | None:
    """The most that a cycle drafts, also where lengths vary: no cycle emits more than one more."""
    if good and all(one.steps is not None for one in good):
        return max((drafted for one in good for drafted, _ in one.steps or {}), default=gamma)
    return group.gamma if gamma is None else gamma


def _intervals(
    gamma: int | None, longest: int | None, tested: bool, good: Sequence[Request]
) -> Row:
    """Jackknife over requests; α and the gap where the tests of each are known."""
    names = ("num_accepted", "num_cycles", "num_tested")
    known = [n for n in names if all(n in one.counts for one in good)]
    if len(good) < 2 or known[:2] != list(names[:2]):
        return {}
    columns = [[float(one.counts[name]) for name in known] for one in good]
    sums = weighed(columns, len(known) - 1)
    most = float("inf") if longest is None else longest + 1.0
    row = bounds("tau", jackknife(lambda s: 1 + s.ratio(0, 1), sums, possible=(1, most)))
    if not tested or len(known) < 3:
        return row
    row |= bounds("alpha", jackknife(lambda s: s.ratio(0, 2), sums, possible=(0, 1)))
    if gamma:
        row |= bounds("tau_gap", jackknife(_gap(gamma), sums))
    return row


def _gap(gamma: int) -> Callable[[Columns], Floats]:
    def gap(sums: Columns) -> Floats:
        alphas = sums.ratio(0, 2)
        closed = [theory.tau(float(a), gamma) if a == a else np.nan for a in alphas]
        found: Floats = 1 + sums.ratio(0, 1) - np.array(closed, dtype=np.float64)
        return found

    return gap
