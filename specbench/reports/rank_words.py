"""What a prediction says in words: what each draft should do, never that it does."""

from __future__ import annotations

from specbench.errors import UsageError
from specbench.estimators.intervals import Interval
from specbench.judgement.findings import Paragraph
from specbench.judgement.verdicts import OPEN, verdict
from specbench.judgement.view import MARGIN
from specbench.latency.ranking import Board, Entry, Ranking, Timed
from specbench.settings.recipe import recipe_from
from specbench.wording import bounds, fixed, gamma_set, one_line, percent, percent_bounds

TONES = {
    "": "",
    "no_difference": "",
    "wins": "good",
    "wins_slightly": "good",
    "loses": "bad",
    "cannot_pay": "bad",
}
SENTENCES = {
    "wins": "{draft} should win: {speed} at γ {gamma}",
    "wins_slightly": "{draft} should win, but by little: {speed} at γ {gamma}",
    "loses": "{draft} should not pay: {speed} at best (γ {gamma})",
    "no_difference": "{draft} should make no difference: {speed} at γ {gamma}",
    "may_win": "{draft} may win: {speed} at γ {gamma}",
    "may_lose": "{draft} may be slower: {speed} at best (γ {gamma})",
    "cannot_tell": "{draft} cannot be told from plain decoding: {speed} at γ {gamma}",
}


def margin(ranking: Ranking) -> float:
    """What counts as a difference."""
    try:
        return recipe_from(ranking.manifest.get("recipe")).measure.margin
    except UsageError:
        return MARGIN


def key_of(one: Entry, margin: float) -> str:
    """The verdict's key; empty where the times are simulated."""
    if one.timed is None:
        return ""
    if one.cannot_pay:
        return "cannot_pay"
    return verdict(one.timed.chosen, margin, most=one.timed.gamma + 1)


def paragraphs(ranking: Ranking, board: Board) -> list[Paragraph]:
    """One per draft, best first, and what a changing γ would give the first."""
    found = [_of(one, key_of(one, margin(ranking))) for one in board.entries]
    if _hopeless(ranking, board):
        lead = "Speculation cannot pay here with any of these drafts."
        found.insert(0, Paragraph(lead, tone="bad"))
    first = next((one for one in board.entries if one.timed), None)
    if first is not None and (sentence := dynamic(first)):
        found.append(Paragraph(sentence))
    return found


def _hopeless(ranking: Ranking, board: Board) -> bool:
    keys = [key_of(one, margin(ranking)) for one in board.entries if one.timed]
    return len(keys) > 1 and all(key == "cannot_pay" for key in keys)


def _of(one: Entry, key: str) -> Paragraph:
    name, timed = one_line(one.draft), one.timed
    if timed is None:
        return Paragraph(f"{name} is not ranked: its times are simulated.")
    if key == "cannot_pay":
        return Paragraph(f"{name} cannot pay here at any γ: {_bound(one, timed)}.", tone="bad")
    at = timed.pick.chosen
    speed = f"{fixed(timed.speedup(at).value)}× {bounds(timed.speedup(at))}"
    text = SENTENCES[key].format(draft=name, speed=speed, gamma=timed.gamma)
    others = gamma_set(timed.others, timed.gamma)
    text += f"; γ {others} cannot be told from it." if others else "."
    text += " A run would tell: specbench run with the same flags." if key in OPEN else ""
    return Paragraph(text, tone=TONES.get(key, "unsure"))


def _bound(one: Entry, timed: Timed) -> str:
    """What α would be needed, and what there is."""
    if one.scored.overlap is None:
        return "each is slower even at the upper end of its interval"
    alpha = f"{fixed(one.alpha(0).value, 3)} {bounds(one.alpha(0), 3)}"
    if timed.needed_alpha is None:
        return f"its cycles cost more than the γ + 1 tokens that they can give; α is {alpha}"
    return f"it would need α {fixed(timed.needed_alpha, 3)} at this cost; it has {alpha}"


def dynamic(one: Entry) -> str:
    """What a draft length that changes would give over the best fixed one (simulated)."""
    parts = [f"{name}: {_gain(found)}" for name, found in one.gains]
    if not parts:
        return ""
    head = "A γ that changes, simulated on the same texts, against the best that stays"
    return f"{head}: {'; '.join(parts)}."


def _gain(found: Interval) -> str:
    if found.value is None:
        return "–"
    low = None if found.low is None else found.low - 1
    high = None if found.high is None else found.high - 1
    return f"{percent(found.value - 1)} % {percent_bounds(Interval(found.value - 1, low, high))}"
