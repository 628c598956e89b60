"""A prediction as people see it: terminal, report.md, chart, rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from specbench.errors import UsageError
from specbench.estimators.intervals import FEW_CLUSTERS
from specbench.judgement.findings import Paragraph
from specbench.judgement.view import Setting, mapping, real
from specbench.latency.ranking import Board, Ranking
from specbench.reports.markdown_text import drawn, escaped
from specbench.reports.rank_tables import checked, checked_cells, curves, drafts
from specbench.reports.rank_words import paragraphs
from specbench.reports.tables import Line
from specbench.reports.terminal import apart, console_for, laid, paths, show, told, wrapped
from specbench.result_files import files
from specbench.result_files.rank_files import RANK
from specbench.result_files.rank_read import table_of
from specbench.signs import Signs
from specbench.wording import count

FORMATS = ("csv", "json", "md")


def report_rank(
    ranking: Ranking,
    *,
    quiet: bool = False,
    paper: bool = False,
    no_color: bool = False,
    stream: TextIO | None = None,
) -> None:
    """Write report.md and the chart into a prediction's folder, and print it."""
    from specbench.charts.rank_plot import draw

    try:
        draw(ranking, titles(ranking), style="paper" if paper else "wide")
        files.replace(ranking.folder / "report.md", report_markdown(ranking))
    except OSError as fault:
        reason = fault.strerror or fault
        print(f"note: report.md and plots/ were not written: {reason}", file=sys.stderr)
    out = stream or sys.stdout
    console, signs = console_for(out, no_color=no_color), Signs(out)
    lines = _quiet(ranking, signs) if quiet else report_lines(ranking, console.width, signs)
    show(lines, console)


def rank_rows(rankings: Sequence[Ranking], output: str) -> str:
    """The rows of `rank.csv` of one prediction or several, as text that ends in a line feed."""
    if output not in FORMATS:
        raise UsageError(f'--format "{output}": no such format', hint="table, csv, json, md")
    if output == "md":
        return "\n".join(map(report_markdown, rankings))
    rows = [row for ranking in rankings for row in table_of(ranking)]
    if output == "csv":
        return files.csv_line(RANK) + "".join(map(files.csv_line, rows))
    named = [dict(zip(RANK, row, strict=True)) for row in rows]
    return json.dumps(named, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def titles(ranking: Ranking) -> list[str]:
    """What tells each board from the others; empty if there is but one."""
    every = [_words(board) for board in ranking.boards]
    varied = [n for n in every[0] if len({words.get(n) for words in every}) > 1]
    return [", ".join(words[name] for name in varied if name in words) for words in every]


def _words(board: Board) -> dict[str, str]:
    law = board.sampling
    return Setting(law.temperature, law.top_k, law.top_p, board.batch_size, None).words()


def report_lines(ranking: Ranking, width: int, signs: Signs) -> list[Line]:
    """Everything, in the order in which it is read."""
    sections = [
        [_styled(line, "dim") for line in wrapped(signs(t), width)] for t in _about(ranking)
    ]
    body: list[list[Line]] = [[line for section in sections for line in section]]
    for board, title in zip(ranking.boards, titles(ranking), strict=True):
        body += list(_board(ranking, board, title, width, signs))
    return apart([*body, paths(ranking.folder, width)])


def _board(
    ranking: Ranking, board: Board, title: str, width: int, signs: Signs
) -> Iterator[list[Line]]:
    head: list[Line] = [[(signs(title), "bold")]] if title else []
    yield head + laid(drafts(ranking, board), width, signs)
    yield laid(curves(board), width, signs)
    found = list(checked_cells(ranking, board))
    if found:
        yield laid(checked(found), width, signs)
    lead: Line = [
        (f"Predicted, {'and run where it says so' if found else 'not run'}. Verdict", "bold"),
        (signs(f", {title}" if title else ""), ""),
    ]
    yield [lead, *told(paragraphs(ranking, board), width, signs)]


def _styled(text: str, style: str) -> Line:
    return [(text, style)]


def _about(ranking: Ranking) -> Iterator[str]:
    """What was done, and how long it took beside a sweep."""
    board = ranking.boards[0]
    texts = board.entries[0].scored.keep.lengths
    scored = {one.draft for b in ranking.boards for one in b.entries}
    shapes = len(board.entries[0].replayed.gammas) + 1
    most = "" if texts.min() == texts.max() else "at most "
    amount = f"{count(len(texts), 'prompt')} × {most}{count(int(texts.max()), 'token')}"
    yield (
        f"1 target text per law ({amount}), {count(len(scored), 'draft')} scored, "
        f"steps timed at {count(shapes, 'shape')}"
    )
    if len(texts) < FEW_CLUSTERS:
        yield f"{count(len(texts), 'prompt')} only: intervals are rough under {FEW_CLUSTERS}"
    spent = [real(value) or 0.0 for value in mapping(ranking.manifest, "seconds").values()]
    if spent:
        sweep = sum(_sweep_s(b) for b in ranking.boards)
        yield f"{_span(sum(spent))}; the same sweep by run would take about {_span(sweep)}"


def _sweep_s(board: Board) -> float:
    """Seconds that the decoding of a whole sweep would take, as predicted."""
    total = 0.0
    for one in board.entries:
        if one.timed is not None:
            forecast = one.timed.forecast
            each = [forecast.latency_s(at) for at in range(len(forecast.gammas))]
            tokens = float(one.scored.keep.lengths.sum())
            total += tokens * (forecast.plain_s() + sum(each)) / board.batch_size
    return total


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _quiet(ranking: Ranking, signs: Signs) -> list[Line]:
    lines: list[Line] = []
    for board, title in zip(ranking.boards, titles(ranking), strict=True):
        first = paragraphs(ranking, board)[0]
        lines.append([(signs(f"{title}: {first.lead}" if title else first.lead), "")])
    return lines


def report_markdown(ranking: Ranking) -> str:
    """The prediction for a pull request: the answer first."""
    parts = ["### specbench: predicted, not run"]
    for board, title in zip(ranking.boards, titles(ranking), strict=True):
        parts += [f"**{escaped(title)}**"] if title else []
        parts += [_told(paragraph) for paragraph in paragraphs(ranking, board)]
        parts += [drawn(drafts(ranking, board)), drawn(curves(board))]
        if found := list(checked_cells(ranking, board)):
            parts.append(drawn(checked(found)))
    about = ". ".join(_about(ranking))
    return "\n\n".join([*parts, f"{about}. Intervals 95 %, over prompts and timed places."]) + "\n"


def _told(paragraph: Paragraph) -> str:
    # A paragraph may be longer than the foreign text that is cut.
    return " ".join(escaped(word) for word in paragraph.text.split())
