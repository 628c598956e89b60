"""What each mark of a chart says when it is pointed at or reached by the keyboard."""

from __future__ import annotations

from collections.abc import Callable

from specbench.charts.gap_plot import PART_NAMES
from specbench.charts.plot_parts import gid_of
from specbench.estimators import stats
from specbench.html_page.page_svg import Tips
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.view import Row, View
from specbench.wording import count, fixed, one_line, signed_interval, with_interval

_PHASES = ("verify", "draft", "other")


def tips(view: View, finding: Finding, chart: str) -> Tips:
    """The texts of one chart, by the ids that its drawing gave."""
    made = _TIPS.get(chart)
    return made(view, finding) if made else {}


def _named(one: DraftFinding, row: Row) -> str:
    return f"{one_line(one.block.draft)}, γ {row.gamma}"


def _speedups(view: View, finding: Finding) -> Tips:
    return {
        f"{gid_of(view, one)}-marks": [_speedup(one, row) for row in one.block.timed]
        for one in finding.drafts
        if one.choice
    }


def _speedup(one: DraftFinding, row: Row) -> str:
    parts = [f"{_named(one, row)}: speedup {with_interval(row.speedup, unit='×')}"]
    formula = row.number("speedup_closed_form")
    parts += [f"formula {fixed(formula)}×"] if formula is not None else []
    parts += [f"τ {with_interval(row.tau)}", f"α {with_interval(row.alpha, 3)}"]
    parts += [f"{fixed(row.latency.value)} ms per token"] if row.latency.value is not None else []
    return "; ".join(parts)


def _taus(view: View, finding: Finding) -> Tips:
    return {
        f"{gid_of(view, one)}-marks": [
            f"{_named(one, row)}: τ {with_interval(row.tau)}; "
            f"closed form {fixed(row.number('tau_closed_form')) or '–'}"
            for row in one.block.measured
            if row.tau.value is not None
        ]
        for one in finding.drafts
    }


def _times(view: View, finding: Finding) -> Tips:
    best = finding.best
    if best is None or best.block.baseline is None:
        return {}
    rows = [best.block.baseline, *best.block.timed]
    texts = [_time(row, phase) for phase in _PHASES for row in rows]
    return {f"bar-{place}": [text] for place, text in enumerate(texts)}


def _time(row: Row, phase: str) -> str:
    name = f"γ {row.gamma}" if row.gamma else "plain decoding"
    own = (row.number(f"t_{phase}_ms") or 0.0) / (row.number("tau_delivered") or 1.0)
    return f"{name}: {phase} {fixed(own)} of {fixed(row.latency.value)} ms per token"


def _hazards(view: View, finding: Finding) -> Tips:
    one = finding.shown
    if one is None or one.diagnosis is None:
        return {}
    total = one.diagnosis.row.part.sums.total()
    kept = stats.hazards(total)[0]
    texts = [
        f"position {place}: kept {fixed(float(share), 3)} of {count(int(tested))} tested"
        for place, (share, tested) in enumerate(zip(kept, total.tested[0], strict=True), start=1)
        # A position that was never tested has no mark.
        if tested
    ]
    return {f"{gid_of(view, one)}-marks": texts}


def _gap(view: View, finding: Finding) -> Tips:
    one = finding.shown
    gap = one.diagnosis.gap if one is not None and one.diagnosis is not None else None
    if gap is None:
        return {}
    parts = gap.parts.items()
    return {
        f"bar-{place}": [f"{PART_NAMES[name]}: {signed_interval(part)} tokens per cycle"]
        for place, (name, part) in enumerate(parts)
    }


def _map(view: View, finding: Finding) -> Tips:
    return {
        f"{gid_of(view, one)}-marks": [
            f"{_named(one, one.choice.row)}: c {fixed(one.choice.row.number('cost_ratio'), 3)}, "
            f"α {with_interval(one.choice.row.alpha, 3)}"
        ]
        for one in finding.drafts
        if one.choice
    }


_TIPS: dict[str, Callable[[View, Finding], Tips]] = {
    "speedup_vs_gamma": _speedups,
    "tau_vs_gamma": _taus,
    "time_per_token": _times,
    "hazards": _hazards,
    "gap_waterfall": _gap,
    "alpha_cost_map": _map,
}
