"""The tables of a page: drafts, cells, categories, prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from specbench.estimators.intervals import Interval
from specbench.html_page.page_answers import change
from specbench.html_page.page_parts import Col, Entry, Line, Sheet, columns, measured, number
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.view import Row, View, real
from specbench.result_files.cells import ALL
from specbench.result_files.summary import summary_of
from specbench.wording import count, one_line

if TYPE_CHECKING:
    import pandas as pd

MOST_PROMPTS = 2_000
"""Rows of the table of prompts; those between the slowest and the fastest stay in the file."""
FIRST = 80
"""Characters of a prompt that its row shows."""
ALPHA = Col("α", "Accepted / tested, over all cycles. After the first rejection nothing is tested")
TAU = Col("τ", "Tokens per cycle: kept drafts and one more from the target")
SPEEDUP = Col("speedup", "Time per token without a draft over time with it; same prompts, paired")
C = Col("c", "One draft step over one step of the target", extra=True)
MS = Col("ms/token", "Decode time per emitted token")
DRAFT = Col("draft", number=False)


def draft_sheet(view: View, finding: Finding) -> Sheet:
    """One row per draft, best first."""
    shown = columns(
        DRAFT,
        Col("γ", "Tokens drafted per cycle"),
        SPEEDUP,
        Col("verdict", number=False),
        Col(ALPHA.name, ALPHA.tip, extra=True),
        C,
        Col("what would change it", number=False, extra=True),
    )
    lines = [_draft(view, one, one is finding.best) for one in finding.drafts]
    return Sheet(
        "drafts", "At each draft's chosen γ; intervals 95 %, over prompts", shown, tuple(lines)
    )


def _draft(view: View, one: DraftFinding, best: bool) -> Line:
    row = one.choice.row if one.choice else None
    name = Entry(one_line(one.block.draft))
    word = Entry(one.word, tone=one.tone)
    if row is None:
        found = one.block.measured[-1] if one.block.measured else None
        alpha = measured(found.alpha, 3) if found else Entry("")
        rest = (Entry(""), Entry(""), word, alpha, Entry(""), Entry(change(one)))
        return Line((name, *rest), draft=place_of(view, one))
    entries = (
        name,
        number(row.gamma, 0),
        measured(row.speedup),
        word,
        measured(row.alpha, 3),
        number(row.number("cost_ratio"), 3),
        Entry(change(one)),
    )
    return Line(entries, strong=best, draft=place_of(view, one))


def place_of(view: View, one: DraftFinding) -> int:
    """The place of a draft in the recipe's order."""
    return view.drafts.index(one.block.draft)


def cell_sheet(view: View, finding: Finding) -> Sheet:
    """One row per draft and γ, with all that a chart shows."""
    shown = columns(
        DRAFT,
        Col("γ", "Tokens drafted per cycle; 0 is plain decoding"),
        SPEEDUP,
        Col("formula", "τ / (γc + v): without any time outside the models"),
        ALPHA,
        TAU,
        Col("τ formula", "(1 − α^(γ+1)) / (1 − α), if each draft is kept independently"),
        MS,
        C,
        Col("v", "Verifying γ + 1 positions over one step of the target", extra=True),
        Col("draft ms", "Per cycle", extra=True),
        Col("verify ms", "Per cycle", extra=True),
        Col("other ms", "Per cycle: everything between the forwards", extra=True),
    )
    lines = [
        Line(_cell(one, row), strong=_chosen(one, row), draft=place_of(view, one))
        for one in finding.drafts
        for row in (*([one.block.baseline] if one.block.baseline else []), *one.block.rows)
    ]
    note = (
        "Bold: chosen. *: highest speedup. ~: with these prompts this γ and the best cannot be "
        "told apart."
    )
    return Sheet("cells", "All cells; intervals 95 %", shown, tuple(lines), "cells", note)


def _chosen(one: DraftFinding, row: Row) -> bool:
    return one.choice is not None and row is one.choice.row


def _cell(one: DraftFinding, row: Row) -> tuple[Entry, ...]:
    mark = one.choice.mark(row.gamma) if one.choice and row.gamma else ""
    speed = measured(row.speedup) if row.gamma else Entry("1.00", "plain decoding", 1.0)
    if not row.measured:
        reason = one_line(row.reason)
        speed = Entry(f"failed: {reason}" if reason else "failed", tone="bad")
    tail = [number(row.number(name)) for name in ("t_draft_ms", "t_verify_ms", "t_other_ms")]
    return (
        Entry(one_line(one.block.draft)),
        Entry(f"{mark} {row.gamma}".strip(), key=row.gamma),
        speed,
        number(row.number("speedup_closed_form") if row.gamma else None),
        measured(row.alpha, 3),
        measured(row.tau) if row.gamma else number(row.tau.value),
        number(row.number("tau_closed_form") if row.gamma else None),
        measured(row.latency),
        number(row.number("cost_ratio"), 3),
        number(row.number("verify_ratio")),
        *tail,
    )


def category_sheet(view: View, finding: Finding) -> Sheet | None:
    """One row per draft at its chosen γ, and category; None where prompts have none."""
    lines = [
        _category(view, one, record)
        for one, record in _by_category(view, finding)
        if one.choice is not None
    ]
    if not lines:
        return None
    shown = columns(Col("category", number=False), DRAFT, SPEEDUP, ALPHA, TAU, MS, "prompts")
    caption = "By category, at each draft's chosen γ; intervals 95 %"
    return Sheet("categories", caption, shown, tuple(lines), "rows")


def _by_category(
    view: View, finding: Finding
) -> Iterator[tuple[DraftFinding, Mapping[str, object]]]:
    chosen = {cell_id(one.choice.row): one for one in finding.drafts if one.choice}
    for record in summary_of(view.run):
        if record["category"] != ALL and record["cell"] in chosen:
            yield chosen[str(record["cell"])], record


def cell_id(row: Row) -> str:
    """The cell of a row."""
    return str(row.part.rows["cell"].iloc[0])


def _category(view: View, one: DraftFinding, record: Mapping[str, object]) -> Line:
    def found(name: str, unit: str = "") -> Interval:
        value, low, high = (real(record.get(f"{name}{end}{unit}")) for end in ("", "_low", "_high"))
        return Interval(value, low, high)

    entries = (
        Entry(one_line(str(record["category"]))),
        Entry(one_line(one.block.draft)),
        measured(found("speedup")),
        measured(found("alpha"), 3),
        measured(found("tau")),
        measured(found("latency", "_ms")),
        number(real(record.get("num_prompts")), 0),
    )
    return Line(entries, draft=place_of(view, one))


def prompt_sheet(view: View, finding: Finding, most: int) -> Sheet | None:
    """One row per draft at its chosen γ, and prompt: at most so many, both ends of the speedup."""
    chosen = [one for one in finding.drafts if one.choice]
    if not chosen or most < 2:
        return None
    firsts = first_words(view)
    each = max(most // len(chosen), 2)
    lines: list[Line] = []
    left_out = 0
    for one in chosen:
        table = _per_prompt(one)
        left_out += max(len(table) - each, 0)
        lines += [_prompt(view, one, row, firsts) for row in _ends(table, each)]
    shown = columns(
        Col("prompt", number=False),
        Col("category", number=False, extra=True),
        DRAFT,
        SPEEDUP,
        ALPHA,
        Col("τ", "Delivered tokens over cycles of this prompt"),
        MS,
        Col("tokens", extra=True),
        Col("begins", number=False, extra=True),
    )
    note = "One prompt gives no interval: its numbers scatter, and only all of them decide."
    if left_out:
        note += (
            f" The {count(len(lines))} slowest and fastest are shown; {count(left_out)} in between "
            "are in generations.csv."
        )
    caption = "By prompt, at each draft's chosen γ"
    return Sheet("prompts", caption, shown, tuple(lines), "prompts", note)


def first_words(view: View) -> dict[str, tuple[str, str]]:
    """Category and first words of each prompt."""
    return {
        str(prompt["prompt_id"]): (
            one_line(str(prompt.get("category") or "")),
            _cut(one_line(prompt_text(prompt)[: 4 * FIRST])),
        )
        for prompt in view.run.prompts
    }


def prompt_text(prompt: Mapping[str, object]) -> str:
    """What was asked: the text, or the last message of the user."""
    messages = prompt.get("messages")
    if isinstance(messages, list) and messages:
        last = messages[-1]
        return str(last.get("content") or "") if isinstance(last, dict) else ""
    return str(prompt.get("text") or "")


def _cut(text: str) -> str:
    return text if len(text) <= FIRST else f"{text[:FIRST].rstrip()}…"


def _per_prompt(one: DraftFinding) -> pd.DataFrame:
    """Sums of each prompt at the chosen γ, with its time per token without the draft."""
    assert one.choice is not None
    own = _sums(one.choice.row)
    if one.block.baseline is not None:
        plain = _sums(one.block.baseline)
        own["plain_s"] = plain["live_s"] / plain["num_timed_tokens"]
    else:
        own["plain_s"] = float("nan")
    own["speedup"] = own["plain_s"] * own["num_timed_tokens"] / own["live_s"]
    return own


_SUMMED = [
    *("num_output_tokens", "num_cycles", "num_tested", "num_accepted"),
    *("num_timed_tokens", "live_s"),
]


def _sums(row: Row) -> pd.DataFrame:
    return row.part.good.groupby("prompt_id", sort=False)[_SUMMED].sum()


def _ends(table: pd.DataFrame, most: int) -> Sequence[Mapping[str, object]]:
    """The rows as records: all of them in the files' order, or the lowest and highest speedups."""
    if len(table) > most:
        order = table["speedup"].rank(method="first", na_option="bottom")
        low, high = most - most // 2, len(table) - most // 2
        table = table[(order <= low) | (order > high)]
    records: list[Mapping[str, object]] = table.reset_index().to_dict("records")  # type: ignore[assignment]
    return records


def _prompt(
    view: View,
    one: DraftFinding,
    row: Mapping[str, object],
    firsts: Mapping[str, tuple[str, str]],
) -> Line:
    name = str(row["prompt_id"])
    tokens, cycles, tested, kept, timed, seconds = (real(row[key]) or 0.0 for key in _SUMMED)
    category, first = firsts.get(name, ("", ""))
    entries = (
        Entry(one_line(name)),
        Entry(category),
        Entry(one_line(one.block.draft)),
        number(_known(row["speedup"])),
        number(kept / tested if tested else None, 3),
        number(tokens / cycles if cycles else None),
        number(1000 * seconds / timed if timed else None),
        number(tokens, 0),
        Entry(first),
    )
    return Line(entries, draft=place_of(view, one))


def _known(value: object) -> float | None:
    found = real(value)
    return None if found is None or found != found else found
