"""What a comparison says: names of its rows, words at their ends, and the sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from specbench.comparison.compare import Block, CellChange, Comparison
from specbench.estimators import stats
from specbench.estimators.changes import Change
from specbench.estimators.intervals import Interval
from specbench.reports.tables import Column, Table, cells
from specbench.wording import (
    count,
    fixed,
    ms_places,
    percent,
    percent_bounds,
    signed_interval,
)

NAMES = {
    "latency_ms": "ms per token",
    "baseline_latency_ms": "plain, ms per token",
    "tau": "τ",
    "t_draft_ms": "T_draft, ms",
    "t_verify_ms": "T_verify, ms",
    "t_other_ms": "T_other, ms",
    "speedup": "speedup",
    "alpha": "α",
    "cost_ratio": "c",
    "verify_ratio": "v",
}
"""How people read the columns."""
_PLACES = {"alpha": 3, "cost_ratio": 3}
_WORSE = {"alpha": "lower", "tau": "lower", "cost_ratio": "higher", "verify_ratio": "higher"}
_BETTER = {"alpha": "higher", "tau": "higher", "cost_ratio": "lower", "verify_ratio": "lower"}


def word(one: Change) -> str:
    """What a row says; empty where it cannot be told."""
    if not one.side:
        return ""
    if one.side < 0:
        return _WORSE.get(one.metric.name, "slower")
    return _BETTER.get(one.metric.name, "faster")


def tone(side: int) -> str:
    """The colour of a change."""
    return {1: "cyan", -1: "red"}.get(side, "")


def number(one: Change, value: float | None) -> str:
    """A value in its decimals."""
    name = one.metric.name
    places = _PLACES.get(name, 2)
    return fixed(value, ms_places([one.old, one.new]) if name.endswith("_ms") else places)


def moved(one: Change) -> str:
    """The change with its interval: percent, or a difference of shares."""
    if not one.metric.relative:
        return signed_interval(one.found)
    return as_percent(one.found)


def as_percent(found: Interval) -> str:
    """A share as signed percent with its interval; empty where there is none."""
    if found.value is None:
        return ""
    return f"{percent(found.value)} % {percent_bounds(found)}"


def p_text(p: float | None) -> str:
    """A p value to two digits, never 0; empty where there is none."""
    if p is None:
        return ""
    if p < 0.001:
        return "< 0.001"
    # Two digits that count, so that no p below 0.05 reads as 0.05.
    return f"{p:.2f}" if p >= 0.0995 else f"{p:.2g}"


def change_table(head: str, rows: Sequence[tuple[str, Change]]) -> Table:
    """One row a number: both values, the change, p, and a word where it can be told."""
    ends = [[(word(one), tone(one.side))] if word(one) else [("", "")] for _, one in rows]
    columns = [
        Column(head, cells([name for name, _ in rows]), shrink=12),
        Column("old", cells([number(one, one.old) for _, one in rows]), right=True),
        Column("new", cells([number(one, one.new) for _, one in rows]), right=True),
        Column("change [95 %]", cells([moved(one) for _, one in rows])),
        Column("p", cells([p_text(one.p_adjusted) for _, one in rows]), right=True),
        Column("verdict", ends),
    ]
    return Table(columns, [""] * len(rows))


def rows_of(found: Comparison, one: CellChange) -> list[tuple[str, Change]]:
    """The rows of a cell, plain decoding first: it tells what the machine did."""
    plain = found.plain(one.cell.old.block)
    first = [(NAMES["baseline_latency_ms"], c) for c in (plain.changes if plain else ())]
    return [*first, *((NAMES[c.metric.name], c) for c in one.changes)]


def others(cells_: Sequence[CellChange], shown: Sequence[CellChange]) -> str:
    """How the cells that are not shown came out; empty where there is none."""
    rest = [one.side for one in cells_ if all(one is not other for other in shown)]
    if not rest:
        return ""
    parts = [
        f"{rest.count(side)} {name}"
        for side, name in ((-1, "slower"), (1, "faster"), (0, "cannot be told"))
        if side in rest
    ]
    return f"{count(len(rest), 'other cell')}: {', '.join(parts)} (--all shows them)"


def sentences(found: Comparison, block: Block) -> Iterator[str]:
    """The answer of one draft in one setting: of the γ that each run's verdict names."""
    yield from named_gammas(found, block)
    cells_ = found.named(block)
    for one in cells_:
        head = f"γ {one.cell.gamma}: " if len(cells_) > 1 else ""
        yield head + sentence(found, one)


def named_gammas(found: Comparison, block: Block) -> Iterator[str]:
    """Which γ each run's verdict names, and whether that changed; none where none has a speedup."""
    old, new = found.choices(block)
    if old is None and new is None:
        return
    if old is not None and new is not None and old.row.gamma == new.row.gamma:
        yield f"Chosen γ: {old.row.gamma} in both runs."
        return
    gammas = [str(one.row.gamma) if one else "none" for one in (old, new)]
    text = f"Chosen γ: {gammas[0]} in the first run, {gammas[1]} in the second"
    if old and new and new.row.gamma in old.others and old.row.gamma in new.others:
        text += "; neither run tells them apart"
    yield f"{text}."
    common = {one.cell.gamma for one in found.blocks[block]}
    for one, other in ((old, "second"), (new, "first")):
        if one is not None and one.row.gamma not in common:
            yield f"γ {one.row.gamma} is not in the {other} run: it cannot be compared."


def sentence(found: Comparison, one: CellChange) -> str:
    """The answer of one cell."""
    speed = one.of("latency_ms") if found.interleaved else one.of("speedup")
    if speed is None:
        tau = one.of("tau")
        return _acceptance_alone(one, tau) if tau else "Nothing to compare."
    if speed.side:
        how = "Slower" if speed.side < 0 else "Faster"
        why = _cause(one, speed.side)
        return f"{how}{f', because {why}' if why else ''}{_acceptance(one, why, found.margin)}."
    return _undecided(speed, found.margin)


def _undecided(speed: Change, margin: float) -> str:
    """No difference within the margin, or none that could be told."""
    low, high = speed.found.low, speed.found.high
    if low is None or high is None:
        return "Cannot be told: too few prompts for an interval."
    if -margin < low and high < margin:
        return f"No difference: the change lies within ±{100 * margin:g} %."
    worst = max(abs(low), abs(high))
    return (
        f"No difference in speed was found; one of up to {100 * worst:.1f} % would not have been."
    )


def _acceptance_alone(one: CellChange, tau: Change) -> str:
    why = "Times are simulated" if one.cell.simulated else "Not both runs have plain decoding"
    return f"{why}; τ is {word(tau) or 'not told apart'}."


def _acceptance(one: CellChange, why: str, margin: float) -> str:
    """Whether acceptance changed, where it is not the reason."""
    tau = one.of("tau")
    if tau is None or "acceptance" in why:
        return ""
    if word(tau):
        return f"; acceptance is {word(tau)}"
    low, high = tau.found.low, tau.found.high
    alike = low is not None and high is not None and -margin < low and high < margin
    return "; acceptance is the same" if alike else "; acceptance cannot be told apart"


def _cause(one: CellChange, side: int) -> str:
    """The largest part of the change in time per token, relative to a plain step."""
    parts = _parts(one)
    if not parts:
        return ""
    name, size = max(parts.items(), key=lambda item: side * item[1])
    return _REASONS[name][0 if side < 0 else 1] if side * size > 0 else ""


_REASONS = {
    "tau": ("acceptance is lower", "acceptance is higher"),
    "ends": ("texts end inside cycles more often", "texts end inside cycles less often"),
    "draft": ("drafting takes longer", "drafting takes less time"),
    "verify": ("verifying takes longer", "verifying takes less time"),
    "other": ("more time passes outside the models", "less time passes outside the models"),
}


def _parts(one: CellChange) -> dict[str, float]:
    """What τ and each phase, over a plain step of its run, add to the log of the speedup."""
    runs = one.cell.paired.total() if one.cell.paired else None
    pairs = (runs.old, runs.new) if runs else tuple(p.total() for p in one.cell.alone)
    shares, taus, kept = [], [], []
    for pair in pairs:
        base, method = pair.baseline, pair.method
        if not base.tokens_timed[0] or not method.cycles_timed[0] or not method.tokens[0]:
            return {}
        step = float(stats.latency(base)[0])
        if step <= 0:
            return {}
        times = (method.draft_s, method.verify_s, method.other_s)
        shares.append([float(t[0] / method.cycles_timed[0]) / step for t in times])
        delivered = float(method.tokens[0] / method.cycles[0])
        # Where positions are not counted the part of the ends is not known.
        accepted = float(method.accepted[0].sum() / method.cycles[0])
        taus.append(1 + accepted if accepted else delivered)
        kept.append(delivered / taus[-1])
    whole = [sum(s) for s in shares]
    mean = (whole[0] + whole[1]) / 2
    if not mean > 0:
        return {}
    names = ("draft", "verify", "other")
    found = {n: (a - b) / mean for n, a, b in zip(names, shares[0], shares[1], strict=True)}
    ends = math.log(kept[1] / kept[0])
    return {"tau": math.log(taus[1] / taus[0]), "ends": ends, **found}
