"""The report as it stands in a terminal: tables, chart, verdict, where the files are."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from specbench.console import PipeConsole
from specbench.judgement.advise import Advice
from specbench.judgement.findings import DraftFinding, Finding, Paragraph
from specbench.judgement.unfinished import missing, state_line
from specbench.reports.block_table import NARROW, TONES, block_table, drafts_table, heading, legend
from specbench.reports.chart import chart
from specbench.reports.context_table import context_tables
from specbench.reports.roofline_view import Rooflines
from specbench.reports.tables import Line, Table, drawn, fitted, flowed, records, spelled
from specbench.signs import Signs
from specbench.wording import one_line

READABLE = 80
"""Sentences are not set wider than this."""
_TOGETHER = re.compile(r" (?=[^\[\]]*\])| (?=[%\[])|(?<=γ) (?=\d)| (?=×)")
"""Spaces inside `[1.90, 2.06]`, before it, before a unit, and after γ."""
_KEPT = "\x1f"
_FILES = ("report.html", "report.md", "summary.csv", "plots")


def report_lines(advice: Advice, width: int, signs: Signs, *, all_cells: bool) -> list[Line]:
    """Everything, in the order in which it is read."""
    sections = [
        _unfinished(advice, width, signs),
        _drafts(advice, width, signs),
        *_contexts(advice, width, signs),
        *(_setting(advice, f, width, signs, all_cells) for f in advice.findings),
        _verdicts(advice, width, signs),
        paths(advice.view.run.folder, width),
    ]
    return apart(sections)


def chart_lines(advice: Advice, width: int, signs: Signs) -> list[Line]:
    """The charts alone, one per setting."""
    return apart(_titled_chart(advice, f, width, signs) for f in advice.findings)


def quiet_lines(advice: Advice, signs: Signs) -> list[Line]:
    """The verdict's first line, once per setting."""
    lines: list[Line] = []
    for finding in advice.findings:
        title = advice.view.title(finding.setting)
        for paragraph in advice.sentences(finding.setting)[:1]:
            head = f"{title}: " if title else ""
            text = " ".join(part for part in (paragraph.lead, paragraph.tail) if part)
            lines.append([(signs(head), ""), (signs(text), "")])
    return lines


def show(lines: list[Line], console: Console) -> None:
    """Print lines as they are, never wrapped anew."""
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=True)


def console_for(stream: TextIO, *, no_color: bool = False, width: int | None = None) -> Console:
    """A console that colours where it may, and never draws over what it printed."""
    interactive = stream.isatty() and not os.environ.get("CI")
    return PipeConsole(
        file=stream,
        width=width,
        no_color=no_color or None,
        highlight=False,
        markup=False,
        emoji=False,
        force_interactive=interactive,
    )


def apart(sections: Iterator[list[Line]] | list[list[Line]]) -> list[Line]:
    """Sections with an empty line between them."""
    lines: list[Line] = []
    for section in sections:
        if section:
            lines += [[], *section] if lines else section
    return lines


def laid(table: Table, width: int, signs: Signs) -> list[Line]:
    """A table in the form that this width allows."""
    table, dots = spelled(table, signs), signs("…")
    fit = fitted(table, width, dots)
    if width < NARROW or fit.width() > width:
        return _wrapped_lines(records(table), width)
    return drawn(fit, width, signs("─"), dots)


def _wrapped_lines(lines: list[Line], width: int) -> list[Line]:
    """Records whose text is wider than the terminal go on below, indented."""
    out: list[Line] = []
    for line in lines:
        text = "".join(t for t, _ in line)
        if cell_len(text) <= width:
            out.append(line)
            continue
        out += [[(part, line[-1][1])] for part in wrapped(text, width, "", "  ")]
    return out


def _drafts(advice: Advice, width: int, signs: Signs) -> list[Line]:
    """The table of drafts, where there are several."""
    if len(advice.view.drafts) < 2:
        return []
    return laid(drafts_table(advice.view, advice.findings), width, signs)


def _contexts(advice: Advice, width: int, signs: Signs) -> Iterator[list[Line]]:
    """Times against context, where there are several."""
    for title, found in context_tables(advice):
        heads: list[Line] = [[(part, "bold")] for part in wrapped(signs(title), width)]
        note = "T: ms per cycle at the chosen γ; KV: of both models, when full"
        body = laid(found, width, signs)
        yield [*heads, [], *body, *([(part, "dim")] for part in wrapped(signs(note), width))]


def _setting(
    advice: Advice, finding: Finding, width: int, signs: Signs, all_cells: bool
) -> list[Line]:
    """The block of the best draft and the chart; the other drafts' blocks on request."""
    first = finding.best or next(iter(finding.drafts), None)
    if first is None:
        return []
    others = [one for one in finding.drafts if one is not first] if all_cells else []
    sections = [_block(advice, first, width, signs)]
    sections.append(_chart(finding, width, signs))
    sections += [_block(advice, one, width, signs) for one in others]
    return apart(sections)


def _block(advice: Advice, one: DraftFinding, width: int, signs: Signs) -> list[Line]:
    names, constants = heading(advice.view, one.block)
    lines = _wrapped_lines([[(signs(text), style) for text, style in names]], width)
    lines += [[(part, "dim")] for part in wrapped(signs(constants), width)]
    roofs = Rooflines(advice.view)
    lines += [[], *laid(block_table(one, width, roofs), width, signs)]
    parts = legend(one, width, roofs=roofs.rates is not None)
    said = [line for part in parts for line in wrapped(signs(part), width)]
    return lines + [[(part, "dim")] for part in flowed(said, width)]


def _chart(finding: Finding, width: int, signs: Signs) -> list[Line]:
    return chart(finding, width, signs, short_gamma="g" if signs.plain else "γ")


def _titled_chart(advice: Advice, finding: Finding, width: int, signs: Signs) -> list[Line]:
    """A chart that stands alone says what it is of."""
    lines = _chart(finding, width, signs)
    if not lines or finding.best is None:
        return []
    names, _ = heading(advice.view, finding.best.block)
    head: Line = [(signs(text), style) for text, style in names]
    return [*_wrapped_lines([head], width), *lines]


def _verdicts(advice: Advice, width: int, signs: Signs) -> list[Line]:
    sections = []
    for finding in advice.findings:
        title = advice.view.title(finding.setting)
        head: Line = [("Verdict", "bold"), (signs(f", {title}") if title else "", "")]
        body = told(advice.sentences(finding.setting), width, signs)
        sections.append([head, *body] if body else [])
    return apart(sections)


def told(paragraphs: list[Paragraph], width: int, signs: Signs) -> list[Line]:
    """Paragraphs as lines, the first one bold."""
    lines: list[Line] = []
    for place, paragraph in enumerate(paragraphs):
        tone = TONES[paragraph.tone]
        style = f"bold {tone}".strip() if place == 0 else tone
        lines += _led(signs(paragraph.lead), signs(paragraph.tail), style, width)
        for sentence in paragraph.follow:
            lines += [[(part, "")] for part in wrapped(signs(sentence), width, "  ", "  ")]
    return lines


def _led(lead: str, tail: str, style: str, width: int) -> list[Line]:
    """A sentence in its style, and what goes on behind it in none, wrapped as one."""
    lines: list[Line] = []
    left = len(lead)
    for part in wrapped(f"{lead} {tail}".rstrip(), width, "  ", "  "):
        text = part[2:]
        lines.append([("  ", ""), (text[:left], style), (text[left:], "")])
        left = max(left - len(text) - 1, 0)
    return lines


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Lines of text, broken between words but not inside an interval or before a unit."""
    size = max(min(width, READABLE), 20)
    kept = _TOGETHER.sub(_KEPT, text)
    lines = textwrap.wrap(
        kept, size, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
    return [line.replace(_KEPT, " ") for line in lines]


def _unfinished(advice: Advice, width: int, signs: Signs) -> list[Line]:
    said = state_line(advice.view)
    if not said:
        return []
    lines: list[Line] = [[(part, "yellow")] for part in wrapped(signs(said), width)]
    for text in missing(advice.view):
        lines += [[(part, "")] for part in wrapped(signs(text), width, "  ", "  ")]
    return lines


def paths(folder: Path, width: int) -> list[Line]:
    """Where the files are, and which there are."""
    home = folder.resolve()
    shown = home.relative_to(Path.cwd()) if home.is_relative_to(Path.cwd()) else folder
    where = one_line(str(shown))
    found = [f"{n}/" if n == "plots" else n for n in _FILES if (folder / n).exists()]
    if cell_len("  ".join([where, *found])) <= width:
        return [[(where, "dim"), ("".join(f"  {name}" for name in found), "")]]
    return [[(where, "dim")], [(f"  {'  '.join(found)}", "")]] if found else [[(where, "dim")]]
