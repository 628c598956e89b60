"""report.md for pull requests: the answer on one screen, tables folded; why.md: the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specbench.judgement.advise import Advice
from specbench.judgement.findings import DraftFinding, Finding
from specbench.judgement.limits import limits
from specbench.judgement.unfinished import missing, state_line
from specbench.judgement.view import Row
from specbench.reports.block_table import against_formula, constants, rules
from specbench.reports.markdown_text import escaped, fold, pieces, row, table
from specbench.reports.pictures import Picture, image
from specbench.reports.why import SECTIONS
from specbench.reports.why_speed import CONTEXT, FLOOR, contexts, floors
from specbench.wording import fixed, gamma_set, ms_places, with_interval

__all__ = ["LIMIT", "WHY_LIMIT", "escaped", "report_markdown", "why_markdown"]

LIMIT = 8_000
"""Bytes: a comment or a step's summary that is longer is not read."""
WHY_LIMIT = 30_000
"""Bytes of why.md: a comment is cut at 64 kB."""
Part = tuple[str, str]
"""Draft and text."""


def report_markdown(advice: Advice, pictures: Sequence[Picture] = ()) -> str:
    """The answer; folded tables that would make it too long are left out, and said to be."""
    text = "\n\n".join(_head(advice))
    return _filled(text, "", [_chart(advice, pictures), *_rows(advice)], LIMIT)


def why_markdown(advice: Advice, pictures: Sequence[Picture] = ()) -> str:
    """What limits each draft, and whether the closed form holds; as long as it may be."""
    text = f"### specbench: why {_title(advice)}"
    for heading, part in {**SECTIONS, FLOOR: floors}.items():
        found = [
            (escaped(one.block.draft)[:60], pieces(said, pictures, finding.setting))
            for finding in advice.findings
            for one in finding.drafts
            if (said := part(advice, finding, one))
        ]
        text = _filled(text, f"#### {heading}", found, WHY_LIMIT).rstrip("\n")
    settings = advice.view.settings[0] if advice.view.settings else None
    if settings is not None:
        found = [
            (escaped(d)[:60], pieces(said, pictures, settings)) for d, said in contexts(advice)
        ]
        text = _filled(text, f"#### {CONTEXT}", found, WHY_LIMIT).rstrip("\n")
    return f"{text}\n"


def _filled(text: str, heading: str, parts: Sequence[Part], limit: int) -> str:
    """A text with the parts for which there is room, and the names of those without."""
    left_out: dict[str, None] = {}
    for draft, part in parts:
        title = f"\n\n{heading}" if heading and heading not in text else ""
        block = f"{title}\n\n{part}" if part else ""
        if len((text + block).encode()) > limit - 400:
            left_out[draft] = None
        else:
            text += block
    if left_out:
        names = ", ".join(list(left_out)[:3])
        text += f"\n\nNot shown here, for length: parts on {names}; see report.html."
    return f"{text}\n"


def _rows(advice: Advice) -> Iterator[Part]:
    for finding in advice.findings:
        for one in finding.drafts:
            yield escaped(one.block.draft)[:60], _folded(advice, finding, one)


def _chart(advice: Advice, pictures: Sequence[Picture]) -> Part:
    """The speedup of every setting as pictures; empty where none was drawn."""
    shown = [image(pictures, "speedup_vs_gamma", s) for s in advice.view.settings]
    body = "\n\n".join(picture for picture in shown if picture)
    return "the chart", fold("Speedup against γ", body) if body else ""


def _head(advice: Advice) -> Iterator[str]:
    """The part that is always seen."""
    yield f"### specbench: {_title(advice)}"
    if state_line(advice.view):
        unreached = "; ".join(escaped(text) for text in missing(advice.view))
        yield ". ".join(part for part in (state_line(advice.view), unreached) if part) + "."
    for finding in advice.findings[:_SETTINGS]:
        yield from _verdict(advice, finding)
    if len(advice.findings) > _SETTINGS:
        yield f"{len(advice.findings) - _SETTINGS} more settings: `specbench report`."
    if any(finding.drafts for finding in advice.findings):
        yield _drafts(advice)
    yield from _limits(advice)
    warnings = [f"- {w.code}: {escaped(w.seen)} → {escaped(w.todo)}" for w in advice.warnings]
    if warnings:
        yield "\n".join(warnings)
    yield _about(advice)


_SETTINGS = 3
"""Whose sentences are shown; the table has more."""


def _limits(advice: Advice) -> Iterator[str]:
    """Why the best draft of the first setting is not faster."""
    best = advice.findings[0].best if advice.findings else None
    if best is not None and best.choice is not None:
        name = f"{escaped(best.block.draft)[:120]} at γ {best.choice.row.gamma}"
        yield f"**Why not faster, {name}.** {limits(best)} More in why.md and report.html."


def _title(advice: Advice) -> str:
    """The answer in a few words."""
    best = advice.findings[0].best if advice.findings else None
    if best is None:
        return "no speedup measured"
    return f"{escaped(best.block.draft)[:120]} {best.word}"


def _verdict(advice: Advice, finding: Finding) -> Iterator[str]:
    """The sentences, the first in bold."""
    title = advice.view.title(finding.setting)
    said = advice.sentences(finding.setting)
    shown, rest = said[:4], said[4:]
    for place, paragraph in enumerate(shown):
        lead = escaped(paragraph.lead)
        head = f"{title[:1].upper()}{title[1:]}: " if title and not place else ""
        tail = " ".join(escaped(part) for part in (paragraph.tail, *paragraph.follow) if part)
        yield f"{head}{f'**{lead}**' if not place else lead} {tail}".rstrip()
    if rest:
        yield f"{len(rest)} more sentences: `specbench report`."


_MOST_ROWS = 12


def _drafts(advice: Advice) -> str:
    """One row per draft and setting."""
    several = len(advice.findings) > 1
    names = ["draft", *(["setting"] if several else []), "γ", "speedup [95 %]", "α", "c"]
    rule = ["---", *["--:"] * (len(names) - 1), "---", "---"]
    lines = [row([*names, "also γ", "verdict"]), row(rule)]
    found = [(finding, one) for finding in advice.findings for one in finding.drafts]
    for finding, one in found[:_MOST_ROWS]:
        setting = [advice.view.title(finding.setting)] if several else []
        lines.append(row([escaped(one.block.draft)[:80], *setting, *_draft_cells(one)]))
    if len(found) > _MOST_ROWS:
        lines.append(row([f"{len(found) - _MOST_ROWS} more", *[""] * len(names), ""]))
    return "\n".join(lines)


def _draft_cells(one: DraftFinding) -> list[str]:
    if one.choice is None:
        return ["", "", "", "", "", one.word]
    chosen, others = one.choice.row, one.choice.others
    return [
        str(chosen.gamma),
        with_interval(chosen.speedup),
        fixed(chosen.alpha.value, 3),
        fixed(chosen.number("cost_ratio"), 3),
        gamma_set(others, chosen.gamma),
        one.word,
    ]


def _about(advice: Advice) -> str:
    """What the numbers hold for."""
    blocks = [one.block for finding in advice.findings for one in finding.drafts]
    if not blocks:
        return "Nothing was measured."
    measured = constants(advice.view, blocks[0])
    if len(advice.findings) > 1:
        measured = measured.split("; ")[-1]
    return f"{escaped(advice.view.target)}: {escaped(measured)}. Intervals 95 %, over prompts."


def _folded(advice: Advice, finding: Finding, one: DraftFinding) -> str:
    """All γ of one draft, behind a line that opens."""
    title = advice.view.title(finding.setting)
    head = f"All γ of {escaped(one.block.draft)[:80]}" + (f", {title}" if title else "")
    rows = [r for r in (one.block.baseline, *one.block.rows) if r is not None]
    names = ["γ", "speedup [95 %]", "τ [95 %]", "", "formula", "ms/token"]
    places = ms_places(r.latency.value for r in rows)
    lines = [_gamma_cells(one, r, places) for r in rows]
    body = [table(names, ["--:", "--:", "--:", ":-:", "--:", "--:"], lines), _legend(one)]
    return fold(head, "\n\n".join(part for part in body if part))


def _legend(one: DraftFinding) -> str:
    """What bold, ~ and the signs mean; empty where there are none."""
    parts, choice = [], one.choice
    if choice is not None:
        parts.append(
            "**bold**: best γ" if choice.row is choice.best else "**bold**: highest speedup"
        )
        parts += ["\\~: cannot be told from the best"] if choice.tied else []
    parts += [escaped(part) for part in rules(one)]
    return f"{'; '.join(parts)}." if parts else ""


def _gamma_cells(one: DraftFinding, found: Row, places: int) -> list[str]:
    mark = one.choice.mark(found.gamma) if one.choice and found.gamma else ""
    if not found.measured:
        return [str(found.gamma), f"failed: {escaped(found.reason)}", "", "", "", ""]
    speed = with_interval(found.speedup) if found.gamma else "1.00 plain decoding"
    cells = [
        f"{found.gamma}",
        "" if found.speedup.value is None else speed,
        with_interval(found.tau) if found.gamma else "1.00",
    ]
    if mark == "*":
        cells = [f"**{cell}**" if cell else "" for cell in cells]
    cells[0] = f"\\~{cells[0]}" if mark == "~" else cells[0]
    closed = fixed(found.number("tau_closed_form")) if found.gamma else ""
    sign = {">": "&gt;", "<": "&lt;"}.get(against_formula(found), against_formula(found))
    return [*cells, sign if found.gamma else "", closed, fixed(found.latency.value, places)]
