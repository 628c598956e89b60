"""report.md for pull requests: the answer first, details folded, 8 kB at most."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from specbench.advise import Advice
from specbench.block_table import against_formula, constants, rules
from specbench.findings import DraftFinding, Finding
from specbench.unfinished import missing, state_line
from specbench.view import Row
from specbench.wording import fixed, gamma_set, ms_places, one_line, with_interval

LIMIT = 8000
"""Bytes: a comment is cut at 64 kB, and what is longer than a screen is not read."""
_SPECIAL = re.compile(r"[\\`*\[\]|#~&<>@]|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
_LONGEST = 200


def escaped(text: str) -> str:
    """Foreign text on one line, without meaning in Markdown or HTML, and mentioning nobody."""
    line = one_line(text)
    line = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
    return _SPECIAL.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), line)


def report_markdown(advice: Advice) -> str:
    """The whole file; folded rows that would make it too long are left out, and said to be."""
    head = "\n\n".join(_head(advice))
    folded, left_out = "", []
    for finding in advice.findings:
        for one in finding.drafts:
            block = _folded(advice, finding, one)
            if len((head + folded + block).encode()) > LIMIT - 400:
                left_out.append(escaped(one.block.draft)[:60])
            else:
                folded += block
    if left_out:
        names = ", ".join(list(dict.fromkeys(left_out))[:3])
        folded += f"\n\nNot shown here, for length: rows of {names}; see summary.csv."
    return f"{head}{folded}\n"


def _head(advice: Advice) -> Iterator[str]:
    """The part that is always seen."""
    yield f"### specbench: {_title(advice)}"
    if state_line(advice.view):
        unreached = "; ".join(escaped(text) for text in missing(advice.view))
        yield ". ".join(part for part in (state_line(advice.view), unreached) if part) + "."
    for finding in advice.findings:
        yield from _verdict(advice, finding)
    if any(finding.drafts for finding in advice.findings):
        yield _drafts(advice)
    warnings = [f"- {w.code}: {escaped(w.seen)} → {escaped(w.todo)}" for w in advice.warnings]
    if warnings:
        yield "\n".join(warnings)
    yield _about(advice)


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
    shown, rest = said[:6], said[6:]
    for place, paragraph in enumerate(shown):
        lead = escaped(paragraph.lead)
        head = f"{title[:1].upper()}{title[1:]}: " if title and not place else ""
        tail = " ".join(escaped(part) for part in (paragraph.tail, *paragraph.follow) if part)
        yield f"{head}{f'**{lead}**' if not place else lead} {tail}".rstrip()
    if rest:
        yield f"{len(rest)} more sentences: `specbench report`."


def _drafts(advice: Advice) -> str:
    """One row per draft and setting."""
    several = len(advice.findings) > 1
    names = ["draft", *(["setting"] if several else []), "γ", "speedup [95 %]", "α", "c"]
    rule = ["---", *["--:"] * (len(names) - 1), "---", "---"]
    lines = [_row([*names, "also γ", "verdict"]), _row(rule)]
    found = [(finding, one) for finding in advice.findings for one in finding.drafts]
    for finding, one in found[:24]:
        setting = [advice.view.title(finding.setting)] if several else []
        lines.append(_row([escaped(one.block.draft)[:80], *setting, *_draft_cells(one)]))
    if len(found) > 24:
        lines.append(_row([f"{len(found) - 24} more", *[""] * len(names), ""]))
    return "\n".join(lines)


def _draft_cells(one: DraftFinding) -> list[str]:
    if one.choice is None:
        return ["", "", "", "", "", one.word]
    row, others = one.choice.row, one.choice.others
    return [
        str(row.gamma),
        with_interval(row.speedup),
        fixed(row.alpha.value, 3),
        fixed(row.number("cost_ratio"), 3),
        gamma_set(others, row.gamma),
        one.word,
    ]


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


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
    rows = [row for row in (one.block.baseline, *one.block.rows) if row is not None]
    names = ["γ", "speedup [95 %]", "τ [95 %]", "", "formula", "ms/token"]
    lines = [_row(names), _row(["--:", "--:", "--:", ":-:", "--:", "--:"])]
    places = ms_places(row.latency.value for row in rows)
    lines += [_row(_gamma_cells(one, row, places)) for row in rows]
    table = "\n".join(lines)
    said = _legend(one)
    return f"\n\n<details><summary>{head}</summary>\n\n{table}\n\n{said}</details>"


def _legend(one: DraftFinding) -> str:
    """What bold, ~ and the signs mean; empty where there are none."""
    parts, choice = [], one.choice
    if choice is not None:
        parts.append(
            "**bold**: best γ" if choice.row is choice.best else "**bold**: highest speedup"
        )
        parts += ["\\~: cannot be told from the best"] if choice.tied else []
    parts += [escaped(part) for part in rules(one)]
    return f"{'; '.join(parts)}.\n\n" if parts else ""


def _gamma_cells(one: DraftFinding, row: Row, places: int) -> list[str]:
    mark = one.choice.mark(row.gamma) if one.choice and row.gamma else ""
    if not row.measured:
        return [str(row.gamma), f"failed: {escaped(row.reason)}", "", "", "", ""]
    speed = with_interval(row.speedup) if row.gamma else "1.00 plain decoding"
    cells = [
        f"{row.gamma}",
        "" if row.speedup.value is None else speed,
        with_interval(row.tau) if row.gamma else "1.00",
    ]
    if mark == "*":
        cells = [f"**{cell}**" if cell else "" for cell in cells]
    cells[0] = f"\\~{cells[0]}" if mark == "~" else cells[0]
    closed = fixed(row.number("tau_closed_form")) if row.gamma else ""
    sign = {">": "&gt;", "<": "&lt;"}.get(against_formula(row), against_formula(row))
    return [*cells, sign if row.gamma else "", closed, fixed(row.latency.value, places)]
