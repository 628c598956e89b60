"""The answer on top of a page, and the four questions below it, each with a closed answer."""

from __future__ import annotations

from specbench.estimators.intervals import closed_form_verdict
from specbench.html_page.page_parts import Card
from specbench.judgement.advise import Advice
from specbench.judgement.advise_text import HALVED, PROMISE, significant_gap, tail, why_not_more
from specbench.judgement.costs import costs_of, halvings, shortfall
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.limits import alpha_to_pay
from specbench.judgement.verdicts import CLEAR, OPEN
from specbench.judgement.view import Row
from specbench.wording import count, fixed, gamma_set, one_line, whole_percents, with_interval

_CAUSES = {
    "rejections": "Rejected drafts",
    "draft": "Drafting",
    "verify beyond a step": "Verifying",
    "other": "Time outside the models",
}
_HELP = {
    "rejections": "A closer draft",
    "draft": "A cheaper draft",
    "verify beyond a step": "Cheaper verifying",
    "other": "A leaner loop",
}
_SURE = {
    "wins": "Sure that it wins",
    "wins_slightly": "Sure that it wins, by little",
    "no_difference": "Sure that it makes no difference",
    "loses": "Sure that it does not pay",
}
NEARLY, OFF = 0.03, 0.08
"""Shares of τ below which the closed form holds, and nearly holds."""


def headline(finding: Finding) -> tuple[str, str]:
    """What to do, and its tone."""
    best = finding.best
    keys = {one.key for one in finding.drafts}
    if best is not None and best.choice is not None:
        if best.key in CLEAR:
            name = one_line(best.block.draft)
            return f"Use {name} with γ {best.choice.row.gamma}", "good"
        if best.choice.speedup.low is None:
            return "No verdict from one prompt", "unsure"
        return (
            ("Cannot be told yet", "unsure") if keys & OPEN else ("Plain decoding is best here", "")
        )
    if keys == {""}:
        return "No verdict: nothing was timed with a draft", ""
    return "No speedup was measured", "bad"


def sentences(advice: Advice, finding: Finding) -> tuple[str, ...]:
    """What stands under the number: the verdict's words, without what the cards say."""
    best, said = finding.best, []
    if best is not None and best.choice is not None and best.block.baseline is not None:
        row, plain = best.choice.row, best.block.baseline
        said.append(tail(best))
        if row.latency.value is not None and plain.latency.value is not None:
            both = f"{fixed(row.latency.value)} ms instead of {fixed(plain.latency.value)} ms"
            said.append(f"Per token: {both}, over {count(row.prompts, 'prompt')}.")
    for paragraph in advice.sentences(finding.setting):
        own = best is not None and paragraph.lead.startswith(one_line(best.block.draft))
        # Of a draft that wins, headline, number and cards have said it all.
        if not (own and best is not None and best.key in CLEAR):
            said.append(" ".join(part for part in (paragraph.lead, paragraph.tail) if part))
    return tuple(text for text in dict.fromkeys(said) if text)


def cards(finding: Finding) -> tuple[Card, ...]:
    """How sure, why not faster, does the formula hold, what would help; none without a speedup."""
    best = finding.best
    if best is None or best.choice is None or best.block.baseline is None:
        return ()
    row, plain = best.choice.row, best.block.baseline
    return (_sure(best), _slow(row, plain), _holds(best), _helps(row, plain))


def _sure(one: DraftFinding) -> Card:
    assert one.choice is not None
    row = one.choice.row
    answer = _SURE.get(one.key, "Not sure yet")
    if row.speedup.low is None or row.speedup.high is None:
        return Card("How sure?", "Not sure at all", "One prompt gives no interval.")
    ends = f"{fixed(row.speedup.low)} to {fixed(row.speedup.high)}"
    detail = f"95 % interval {ends}, over {count(row.prompts, 'prompt')}"
    if one.key not in _SURE:
        return Card("How sure?", answer, f"{detail}. {tail(one)}")
    others = gamma_set(one.choice.others, row.gamma)
    return Card("How sure?", answer, detail + (f"; γ {others} may be as good" if others else ""))


def _slow(row: Row, plain: Row) -> Card:
    question, found = "Why not faster?", halvings(row, plain)
    promised, speed = row.number("speedup_closed_form"), row.speedup.value or 0.0
    parts = shortfall(row, plain)
    if promised and speed and promised >= PROMISE * speed and parts is not None:
        cause = next(iter(parts.missing))
        names = {"acceptance": "Rejected drafts", "overhead": "Time outside the models"}
        names["ends"] = "Texts that end inside cycles"
        names["cost"] = "Drafting" if parts.draft < parts.verify else "Verifying"
        return Card(question, names[cause], why_not_more(row, plain).removeprefix("Why not more: "))
    costs = costs_of(row, plain)
    if not found or costs is None:
        return Card(question, "Cannot be said", "A time or τ was not measured.")
    first = next(iter(found))
    shares = whole_percents([costs.draft, costs.verify, costs.other])
    phases = ("drafting", "verifying", "all else")
    split = ", ".join(f"{share} % {name}" for share, name in zip(shares, phases, strict=True))
    formula = f"the formula promises {fixed(promised)}×; " if promised else ""
    return Card(question, _CAUSES[first], f"{formula}a cycle is {split}")


def _holds(one: DraftFinding) -> Card:
    """Whether τ is what α and γ say, over all γ of the draft."""
    question = "Does the formula hold?"
    rows = [row for row in one.block.measured if row.tau.value is not None and row.gamma > 1]
    off = [(share, row) for row in rows if (share := significant_gap(row, NEARLY)) is not None]
    if off:
        share, row = max(off, key=lambda found: abs(found[0]))
        amount = f"{fixed(100 * abs(share), 0)} % off"
        answer = f"Nearly: {amount} at most" if abs(share) < OFF else f"No: {amount}"
        closed = fixed(row.number("tau_closed_form"))
        return Card(
            question, answer, f"τ {fixed(row.tau.value)} at γ {row.gamma}, it says {closed}"
        )
    if not rows:
        counted = any(row.tau.value is not None for row in one.block.measured)
        why = "At γ 1 it holds by definition." if counted else "No tokens per cycle were counted."
        return Card(question, "Nothing to compare", why)
    verdicts = {closed_form_verdict(row.gap, row.tau.value) for row in rows}
    chosen = one.choice.row.gamma if one.choice else None
    row = next((row for row in rows if row.gamma == chosen), rows[-1])
    closed = fixed(row.number("tau_closed_form"))
    said = f"τ {with_interval(row.tau)} at γ {row.gamma}, it says {closed}"
    answer = "Yes" if verdicts == {"agrees"} else "Not told apart yet"
    return Card(question, answer, said)


def _helps(row: Row, plain: Row) -> Card:
    found, speed = list(halvings(row, plain).items()), row.speedup.value
    if not found or speed is None:
        return Card("What would help?", "Cannot be said", "A time or τ was not measured.")
    gains = [f"{HALVED[name]} {fixed(speed * lever.gain)}×" for name, lever in found[:2]]
    return Card("What would help?", _HELP[found[0][0]], "; ".join(gains))


def change(one: DraftFinding) -> str:
    """What would change the verdict on a draft, for its row."""
    if one.choice is None or one.block.baseline is None:
        return one_line(one.block.reason)
    row, plain = one.choice.row, one.block.baseline
    if one.key in OPEN:
        return tail(one)
    costs = costs_of(row, plain)
    if one.key == "loses" and costs is not None:
        needed = alpha_to_pay(row, costs)
        return "no α pays at this cost" if needed is None else f"α {fixed(needed, 3)} at this cost"
    found, speed = list(halvings(row, plain).items())[:1], row.speedup.value
    return "".join(f"{HALVED[name]}: {fixed((speed or 0) * lever.gain)}×" for name, lever in found)
