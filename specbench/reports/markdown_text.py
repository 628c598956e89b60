"""Small parts of Markdown: foreign text, tables, folds, pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specbench.judgement.view import Setting
from specbench.reports.content import Chart, Fold, Grid, Piece, Text
from specbench.reports.pictures import Picture, image
from specbench.reports.tables import Table, plain
from specbench.wording import one_line

_SPECIAL = re.compile(r"[\\`*\[\]|#~&<>@]|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
_LONGEST = 200


def escaped(text: str) -> str:
    """Foreign text on one line, without meaning in Markdown or HTML, and mentioning nobody."""
    line = one_line(text)
    line = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
    return _SPECIAL.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), line)


def row(texts: Sequence[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(texts)} |"


def table(header: Sequence[str], rules: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose texts are safe."""
    return "\n".join([row(header), row(rules), *map(row, rows)])


def drawn(shown: Table) -> str:
    """A table of the terminal as Markdown."""
    rules = ["--:" if column.right else "---" for column in shown.columns]
    rows = [
        [escaped(plain(column.cells[place]).strip()) for column in shown.columns]
        for place in range(len(shown.styles))
    ]
    return table([escaped(column.name.strip()) for column in shown.columns], rules, rows)


def fold(head: str, body: str) -> str:
    """A body behind a line that opens."""
    return f"<details><summary>{head}</summary>\n\n{body}\n\n</details>"


def pieces(found: Sequence[Piece], pictures: Sequence[Picture], setting: Setting) -> str:
    """Pieces of a report, one under the other; charts that were not drawn are left out."""
    said = (_piece(one, pictures, setting) for one in found)
    return "\n\n".join(text for text in said if text)


def _piece(one: Piece, pictures: Sequence[Picture], setting: Setting) -> str:
    match one:
        case Text(text, lead):
            return f"**{escaped(lead)}** {text}" if lead else text
        case Grid():
            return _grid(one)
        case Chart(name):
            return image(pictures, name, setting)
        case Fold(head, body):
            return fold(head, pieces(body, pictures, setting))


def _grid(found: Grid) -> str:
    rows = [[cell.replace("<", "&lt;") for cell in line] for line in found.rows]
    if found.total:
        rows[-1][:2] = [f"**{cell}**" for cell in rows[-1][:2]]
    return table(found.header, ["--:" if right else "---" for right in found.right], rows)
