"""Why the speedup is not higher, and whether the closed form holds."""

from __future__ import annotations

import math
from collections.abc import Callable

from specbench.charts.gap_plot import PART_NAMES
from specbench.estimators import stats
from specbench.estimators.intervals import Interval, closed_form_verdict
from specbench.judgement.advise import Advice
from specbench.judgement.costs import costs_of, shortfall
from specbench.judgement.diagnosis import Diagnosis
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.limits import limits
from specbench.judgement.precision import Precision
from specbench.judgement.view import Row
from specbench.latency.latency_parts import CycleCosts, SpeedupParts
from specbench.reports.content import Chart, Fold, Grid, Piece, Text, grid
from specbench.wording import (
    count,
    fixed,
    one_line,
    p_value,
    percent,
    percent_bounds,
    signed_interval,
    with_interval,
)

_TESTS = {
    "positions": "kept share by position (likelihood ratio)",
    "trend with position": "trend with position (robust to prompts)",
    "full accepts": "full accepts against α^γ",
    "between prompts": "kept share by prompt (χ²)",
    "successive cycles": "successive cycles (lag 1)",
    "order within prompts": "order within prompts (permutations)",
}
_EFFECTS = {
    "trend with position": "{} per position",
    "full accepts": "{} of cycles",
    "successive cycles": "correlation {}",
    "order within prompts": "{} tokens per cycle",
}
_ENOUGH = 20
"""Tests at a position below which its share is not quoted as the lowest or highest."""
_ANSWERS = {
    "agrees": "Yes, within 1 % of τ",
    "deviates": "No",
    "undecided": "Cannot be told to 1 % yet",
}


def name_of(advice: Advice, finding: Finding, one: DraftFinding, row: Row) -> str:
    """The draft, its γ and the setting, as a paragraph begins."""
    title = advice.view.title(finding.setting)
    head = f"{title[:1].upper()}{title[1:]}, " if title else ""
    return f"{head}{one_line(one.block.draft)} at γ {row.gamma}."


def why_not_faster(advice: Advice, finding: Finding, one: DraftFinding) -> list[Piece]:
    """The measured speedup against the closed form's, and what would help; empty without one."""
    if one.choice is None:
        return []
    row, baseline = one.choice.row, one.block.baseline
    costs, parts = costs_of(row, baseline), shortfall(row, baseline)
    speed = with_interval(row.speedup, unit="×")
    said = f"Measured: {speed}. {limits(one)}"
    out: list[Piece] = [Text(said, lead=name_of(advice, finding, one, row))]
    if costs is not None and parts is not None:
        way = (_way(row, costs, parts), Text(_cycle_cost(row, costs)))
        head = f"From the closed form's {fixed(parts.promised)}× to the measured speedup"
        out += way if one is finding.best else [Fold(head, way)]
        out += [Text(_fast_block(row, costs))] if parts.fast_block else []
    if one is finding.best:
        out += [Chart("time_per_token"), Chart("alpha_cost_map")]
    return out


def _way(row: Row, costs: CycleCosts, parts: SpeedupParts) -> Grid:
    """Factors whose product is the measured speedup."""
    tau, closed = fixed(row.tau.value), fixed(costs.promised_tau)
    c, v = fixed(row.number("cost_ratio"), 3), fixed(row.number("verify_ratio"))
    outside = fixed(100 * costs.other / costs.cycle, 0)
    lines = [
        ("closed form", f"{fixed(parts.promised)}×", f"{closed} / ({row.gamma} × {c} + {v})"),
        ("acceptance: τ", _factor(parts.closed_form), f"{tau} instead of {closed}"),
        (
            "acceptance: ends of texts",
            _factor(parts.ends),
            f"{fixed(costs.tau_delivered)} of {tau} tokens a cycle are within the text's limit",
        ),
        ("cost: drafting (c)", _factor(parts.draft), "c is that of these cycles"),
        ("cost: verifying (v)", _factor(parts.verify), "v is that of these cycles"),
        ("time outside the models", _factor(parts.overhead), _outside(parts, outside)),
    ]
    speed = row.speedup.value or costs.speedup
    if abs(math.log(speed / costs.speedup)) > 5e-4:
        aside = "only the prompts that are whole in both cells count"
        lines.append(("pairing", _factor(math.log(speed / costs.speedup)), aside))
    lines.append(("measured", f"{fixed(speed)}×", f"95 % {_bounds(row.speedup)}"))
    return grid(["from the closed form", "factor", ""], lines, [1], total=True)


def _outside(parts: SpeedupParts, share: str) -> str:
    """What time outside the models does to the speedup: plain decoding has some of it too."""
    said = f"{share} % of a cycle"
    if abs(parts.overhead) < 0.005:
        return f"{said}, about as in plain decoding"
    return f"{said}, {'less' if parts.overhead > 0 else 'more'} than in plain decoding"


def _bounds(found: Interval) -> str:
    return with_interval(found).partition(" ")[2]


def _factor(log: float) -> str:
    return f"× {fixed(math.exp(log), 3)}"


def _cycle_cost(row: Row, costs: CycleCosts) -> str:
    parts = [x / costs.step for x in (costs.cycle, costs.draft, costs.verify, costs.other)]
    cycle, draft, verify, other = (fixed(x) for x in parts)
    return (
        f"A cycle takes {cycle} steps of the target: γc {draft} for drafting, v {verify} for "
        f"verifying {row.gamma + 1} positions, {other} outside the models. A token of plain "
        f"decoding takes {fixed(costs.plain / costs.step)} steps."
    )


def _fast_block(row: Row, costs: CycleCosts) -> str:
    """v < 1, named as what it is."""
    v = fixed(row.number("verify_ratio"))
    slower = costs.cycle / (costs.cycle + costs.step - costs.verify)
    speed = fixed((row.speedup.value or costs.speedup) * slower)
    return (
        f"v is {v}, below 1: the pass over {row.gamma + 1} positions is faster than one plain "
        "step. That is an artefact of the kernels of the one-token path, no merit of the draft; "
        f"at v = 1 the speedup would be {speed}×."
    )


def closed_form(advice: Advice, finding: Finding, one: DraftFinding) -> list[Piece]:
    """Whether τ is what one α says, and if not, why; empty for a draft without numbers."""
    found = one.diagnosis
    if found is None:
        return []
    first = one is finding.shown
    out: list[Piece] = [Text(_answer(found), lead=name_of(advice, finding, one, found.row))]
    if found.row.alpha.value is not None and found.row.gamma > 1:
        gap = _gap(found)
        folded = isinstance(gap, Grid) and not first
        out.append(Fold("Parts of the gap", (gap,)) if folded else gap)
    if first:
        out += [Chart("tau_vs_gamma"), Chart("hazards"), Chart("gap_waterfall")]
    if found.row.alpha.value is not None and found.row.gamma > 1:
        out.append(Fold("Tests of independence", _tests(found)))
    out.append(Fold("How sure, and how many prompts would halve the intervals", _sure(found)))
    return out


def _answer(found: Diagnosis) -> str:
    row = found.row
    if row.alpha.value is None:
        why = "the draft proposed nothing" if row.number("num_cycles") else "there was no cycle"
        return f"Nothing was tested: {why}, so there is no α to put in."
    if row.gamma == 1:
        return "At γ 1 it holds by definition: a cycle that drafts gives 1 + α tokens."
    closed = fixed(row.number("tau_closed_form"))
    if row.tau.value is None:
        return "τ is not defined: a position behind kept drafts was never tested."
    verdict = _ANSWERS.get(closed_form_verdict(row.gap, row.tau.value), "")
    share = found.tests.gap
    off = "–" if share.value is None else f"{percent(share.value)} % {percent_bounds(share)}"
    alpha = with_interval(row.alpha, 3)
    return (
        f"{verdict}: τ is {with_interval(row.tau)}, and at α {alpha} the closed form says "
        f"{closed}. Measured less formula, of τ: {off}."
    )


def _gap(found: Diagnosis) -> Text | Grid:
    gap = found.gap
    if gap is None:
        return Text(f"{found.no_gap} From accept bits alone: {found.cause}.")
    over = "over all tokens of the texts"
    lines = [
        (
            f"closed form at α {fixed(gap.alpha_text.value, 3)}, {over}",
            with_interval(gap.closed_form),
        ),
        *((PART_NAMES[name], signed_interval(part)) for name, part in gap.parts.items()),
        ("measured, of delivered tokens", with_interval(gap.measured)),
    ]
    return grid(["parts of the gap", "tokens per cycle [95 %]"], lines, [1], total=True)


def _tests(found: Diagnosis) -> tuple[Text | Grid, ...]:
    lines = [
        (
            _TESTS[test.name],
            p_value(test.p_value),
            p_value(test.adjusted),
            _effect(found, test.name),
        )
        for test in found.tests.tests
        if test.p_value is not None
    ]
    if not lines:
        return (Text("No test could be made with these prompts."),)
    header = ["each draft kept independently at one α?", "p", "Holm", "size of the departure"]
    share = found.tests.gap
    off = "" if share.value is None else f"{percent(share.value)} % {percent_bounds(share)}"
    told = f"All of it together moves τ by {off}. With enough cycles any departure is found."
    return grid(header, lines, [1, 2]), Text(told)


def _effect(found: Diagnosis, name: str) -> str:
    if name == "positions":
        return _range(found)
    effect = found.effects[name]
    if effect.value is None:
        return ""
    if name == "between prompts":
        return f"sd of α {with_interval(effect, 3)}"
    return _EFFECTS[name].format(signed_interval(effect))


def _range(found: Diagnosis) -> str:
    """The lowest and the highest share kept, and where."""
    total = found.row.part.sums.total()
    kept, tested = stats.hazards(total)[0], total.tested[0]
    usable = [i for i in range(len(kept)) if tested[i] >= min(_ENOUGH, tested.max())]
    low, high = (pick(usable, key=lambda i: kept[i]) for pick in (min, max))
    parts = [f"{fixed(float(kept[i]), 3)} at position {i + 1}" for i in (low, high)]
    return " to ".join(parts)


def _sure(found: Diagnosis) -> tuple[Text | Grid, ...]:
    lines = [
        (
            _ESTIMATES.get(one.name, one.name),
            _shown(one),
            fixed(one.design_effect, 1),
            "" if one.prompts is None else count(one.prompts),
        )
        for one in found.precision
        if one.found.value is not None
    ]
    if not lines:
        return (Text("Nothing was estimated."),)
    header = ["", "[95 %]", "design effect", "prompts to halve it"]
    told = (
        f"From {count(found.row.prompts, 'prompt')}. Design effect: variance over prompts against "
        "that of cycles taken as independent; below 1 pairing or dependence takes more away."
    )
    return grid(header, lines, [1, 2, 3]), Text(told)


_ESTIMATES = {"gap": "gap, τ less closed form", "L": "L, ms per token", "ln speedup": "ln speedup"}


def _shown(one: Precision) -> str:
    found = one.found
    if one.name == "gap":
        return signed_interval(found)
    if one.name == "L":
        return with_interval(_scaled(found, lambda seconds: 1000 * seconds))
    if one.name == "ln speedup":
        return signed_interval(_scaled(found, math.log))
    return with_interval(found, 3 if one.name == "α" else 2)


def _scaled(found: Interval, scale: Callable[[float], float]) -> Interval:
    low, value, high = (None if not x else scale(x) for x in (found.low, found.value, found.high))
    return Interval(value, low, high)


SECTIONS: dict[str, Callable[[Advice, Finding, DraftFinding], list[Piece]]] = {
    "Why not faster?": why_not_faster,
    "Does the closed form hold?": closed_form,
}
"""What the pieces of each heading are made by, in the order in which they are read."""
