"""The sentences of a verdict."""

from __future__ import annotations

from collections.abc import Iterator

from specbench.estimators.intervals import FEW_CLUSTERS, closed_form_verdict
from specbench.judgement.costs import costs_of, halvings, shortfall
from specbench.judgement.findings import DraftFinding, Finding, Paragraph
from specbench.judgement.verdicts import CLEAR, OPEN, Choice, prompts_to_decide
from specbench.judgement.view import Block, Row, View, mapping
from specbench.wording import (
    bounds,
    count,
    fixed,
    gamma_range,
    gamma_set,
    one_line,
    percent,
    percent_bounds,
    with_interval,
)

MOST = 4
"""Sentences that may follow the first."""
PROMISE = 1.05
"""The formula's speedup over the measured one, from which on the difference is explained."""
OFF = 0.03
"""A gap of this share of τ is explained."""
_FIRST = {
    "wins": "{draft} wins: {speed} at γ {gamma}.",
    "wins_slightly": "{draft} wins, but by little: {speed} at γ {gamma}.",
    "no_difference": "{draft} makes no difference: {speed}.",
    "may_win": "{draft} may win: {speed} at γ {gamma}.",
    "may_lose": "{draft} may be slower: {speed} at γ {gamma}.",
    "cannot_tell": "{draft}: cannot be told from plain decoding, {speed}.",
    "loses": "{draft} does not pay: {speed} at best (γ {gamma}).",
}
HALVED = {
    "rejections": "half the rejections",
    "draft": "half the draft time",
    "verify beyond a step": "half the extra time of verifying",
    "other": "half the time outside the models",
}
"""What half of each lever is called."""


def paragraphs(view: View, finding: Finding, *, busy: bool = False) -> list[Paragraph]:
    """The whole verdict of one setting, in the order in which it is read."""
    out = [_headline(finding)] if _headline(finding) else []
    for one in finding.drafts:
        follow = tuple(_follow(one, busy=busy)) if one is finding.best else ()
        out.append(Paragraph(first_sentence(one), tail(one), follow, one.tone))
    closing = [*_comparison(finding), *_unchecked(view, finding)]
    return [p for p in out if p] + [Paragraph(sentence) for sentence in closing]


def _headline(finding: Finding) -> Paragraph | None:
    """What to do where no draft wins."""
    keys = {one.key for one in finding.drafts}
    if not any(one.choice for one in finding.drafts) or keys & CLEAR:
        return None
    if keys & OPEN:
        return Paragraph("Whether a draft pays here cannot be told yet.", tone="unsure")
    return Paragraph("Plain decoding is best here.", tone="bad")


def first_sentence(one: DraftFinding) -> str:
    """The verdict on one draft."""
    draft = one_line(one.block.draft)
    if one.key == "":
        return _simulated(one.block, draft) if one.block.rows else _plain_alone(one.block)
    if one.choice is None:
        return _not_measured(one.block, draft)
    row = one.choice.row
    if one.choice.speedup.low is None:
        speed = f"{with_interval(row.speedup, unit='×')} at γ {row.gamma}"
        return f"{draft}: {speed}, without an interval, so without a verdict."
    speed = with_interval(row.speedup, unit="×")
    return _FIRST[one.key].format(draft=draft, speed=speed, gamma=row.gamma)


def _not_measured(block: Block, draft: str) -> str:
    if block.measured:
        return f"{draft} has no speedup, as plain decoding was not measured: {_reason(block)}."
    return f"{draft} was not measured: {_reason(block)}."


def _plain_alone(block: Block) -> str:
    latency = block.baseline.latency.value if block.baseline else None
    found = f": {fixed(latency)} ms per token" if latency is not None else ""
    return f"Plain decoding alone was measured{found}."


def _reason(block: Block) -> str:
    if block.reason:
        return one_line(block.reason).rstrip(".")
    return "no cell of it was finished" if block.baseline else "no baseline was finished"


def _simulated(block: Block, draft: str) -> str:
    row = block.measured[-1]
    found = f"α {with_interval(row.alpha, 3)}, τ {with_interval(row.tau)}"
    return f"{draft}: {found} at γ {row.gamma}, measured; its time is simulated, so no verdict."


def tail(one: DraftFinding) -> str:
    """What goes on in the first line: prompts that would decide, γ that are as good."""
    choice = one.choice
    if choice is None:
        return ""
    if choice.speedup.low is None:
        return "For both, more prompts: --num-prompts 24."
    said = []
    if one.key in CLEAR or one.key in OPEN:
        said.append(_others(one, choice))
    if one.key in OPEN:
        said += [_allowing(one.block, choice), _more_prompts(choice)]
    return " ".join(part for part in said if part)


def _others(one: DraftFinding, choice: Choice) -> str:
    """Which γ are as good as the chosen one, as far as can be told."""
    if not choice.others:
        return ""
    tried = [row.gamma for row in one.block.timed]
    if len(choice.others) + 1 < len(tried) or len(tried) < 3:
        return f"γ {gamma_set(choice.others, choice.row.gamma)} cannot be told from it."
    every = gamma_range(tried)
    if choice.alike(one.margin):
        return f"γ makes no difference among {every}: all within {100 * one.margin:g} %."
    needed = choice.prompts_to_tell(one.margin)
    how = f"about {count(needed)} would tell" if needed else "more will hardly tell"
    return f"γ {every} cannot be told apart with these prompts; {how}."


def _allowing(block: Block, choice: Choice) -> str:
    """Why a verdict stays open although the interval of the table clears 1."""
    low, high = choice.row.speedup.low, choice.row.speedup.high
    clear = low is not None and high is not None and (low > 1 or high < 1)
    if not clear or choice.few or choice.impossible:
        return ""
    return f"Allowing for the {len(block.timed)} γ tried: {bounds(choice.speedup)}."


def _more_prompts(choice: Choice) -> str:
    if choice.impossible:
        most = f"Above γ + 1 = {choice.row.gamma + 1}×"
        return f"{most} something beside the draft is measured: plain decoding is slow here."
    if choice.few:
        of = "prompts" if choice.speedup.clusters >= choice.row.prompts else "batches of prompts"
        return f"Too few {of} to decide: it takes {FEW_CLUSTERS}."
    needed = prompts_to_decide(choice.speedup, choice.row.prompts)
    if needed is None:
        return "More prompts will hardly decide it."
    return f"About {count(needed)} prompts would decide."


def _follow(one: DraftFinding, *, busy: bool) -> Iterator[str]:
    """What follows on the best draft, at most four sentences; doubts come before details."""
    choice, baseline = one.choice, one.block.baseline
    if choice is None or baseline is None:
        return
    doubts = [_few(choice), _noisy(busy)]
    details = [
        why_not_more(choice.row, baseline),
        _what_helps(choice.row, baseline),
        _largest_tried(one.block, choice),
        _off(one),
    ]
    doubts = [text for text in doubts if text]
    details = [text for text in details if text][: MOST - len(doubts)]
    yield from details
    yield from doubts


def _largest_tried(block: Block, choice: Choice) -> str:
    if not choice.at_edge(block):
        return ""
    last = block.rows[-1].gamma
    return f"γ {last} was the largest tried: try --gamma {last}-{2 * last}*2."


def why_not_more(row: Row, baseline: Row) -> str:
    """What the formula promises, and what is missing most; empty where it promises little more."""
    formula, speed = row.number("speedup_closed_form"), row.speedup.value
    parts = shortfall(row, baseline)
    if not formula or not speed or formula < PROMISE * speed or parts is None:
        return ""
    promise = f"Why not more: the formula promises {fixed(formula)}×. "
    largest, share = next(iter(parts.missing.items()))
    return promise + _missing(largest, share, row, baseline)


def _missing(part: str, log: float, row: Row, baseline: Row) -> str:
    tau, closed = fixed(row.tau.value), fixed(row.number("tau_closed_form"))
    if part == "acceptance":
        return f"The formula's τ is not reached ({tau} instead of {closed})."
    if part == "ends":
        arrived = fixed(row.number("tau_delivered"))
        return f"Texts end inside cycles ({arrived} of {tau} tokens a cycle arrive)."
    if part == "cost":
        longer = fixed(100 * log, 0)
        return f"A cycle's forwards take {longer} % longer than single steps timed alone."
    costs = costs_of(row, baseline)
    share = fixed(100 * costs.other / costs.cycle, 0) if costs else "–"
    # A wide interval that holds 0 shows nothing.
    agrees = closed_form_verdict(row.gap, row.tau.value, OFF) == "agrees"
    aside = "; acceptance is as the formula says" if agrees else ""
    return f"What is missing is time outside the models, {share} % of a cycle{aside}."


def _what_helps(row: Row, baseline: Row) -> str:
    best, speed = list(halvings(row, baseline).items())[:2], row.speedup.value
    if not best or speed is None:
        return ""
    said = ", ".join(f"{HALVED[name]} {fixed(speed * lever.gain)}×" for name, lever in best)
    return f"What would help most: {said}."


def _off(one: DraftFinding) -> str:
    """The closed form's error at the chosen γ, with its cause."""
    found = one.diagnosis
    share = significant_gap(found.row, OFF) if found else None
    if found is None or share is None:
        return ""
    off = fixed(100 * abs(share), 0)
    return f"The closed form is off by {off} % at γ {found.row.gamma}: {found.cause}."


def significant_gap(row: Row, limit: float) -> float | None:
    """The gap as a share of τ, where it reaches a limit and is not chance; else None."""
    gap, tau = row.gap, row.tau.value
    if gap.value is None or gap.low is None or gap.high is None or not tau:
        return None
    share = gap.value / tau
    return share if abs(share) >= limit and not gap.low <= 0 <= gap.high else None


def _few(choice: Choice) -> str:
    """A word of caution where there are few clusters."""
    clusters = choice.speedup.clusters
    if clusters < 2 or clusters >= FEW_CLUSTERS:
        return ""
    if clusters < choice.row.prompts:
        return f"Only {clusters} batches of prompts: take the intervals as rough."
    return f"Only {clusters} prompts: take the intervals as rough."


def _noisy(busy: bool) -> str:
    if not busy:
        return ""
    return "The machine was busy: the interval covers its scatter, not a steady slowdown."


def _comparison(finding: Finding) -> Iterator[str]:
    """The two best winners against each other."""
    winners = [one for one in finding.drafts if one.key in CLEAR]
    lead = finding.lead
    if len(winners) < 2 or lead is None or lead.low is None or lead.high is None:
        return
    first, second = (one_line(one.block.draft) for one in winners[:2])
    if lead.low <= 1 <= lead.high:
        yield f"{first} and {second} cannot be told apart."
        return
    change = type(lead)((lead.value or 1.0) - 1, lead.low - 1, lead.high - 1)
    by = f"{percent(change.value or 0.0).removeprefix('+')} % {percent_bounds(change)}"
    yield f"{first} is faster than {second} by {by}."


def _unchecked(view: View, finding: Finding) -> Iterator[str]:
    """Whether the best draft's output was shown to be the target's."""
    best = finding.best
    if best is None:
        return
    found = mapping(view.run.manifest, "verified").get(best.block.draft)
    if found is None:
        yield "Not checked for losslessness: specbench verify does it."
    elif found != "lossless":
        told = "Not lossless" if found == "not-lossless" else "Losslessness cannot be told"
        yield f"{told}, by specbench verify."
