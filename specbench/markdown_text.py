"""Small parts of Markdown: foreign text, tables, folds, pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specbench.tables import Table, plain
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


def p_value(p: float | None) -> str:
    """A p value to two digits, never 0; empty where there is none."""
    if p is None:
        return ""
    return "&lt; 0.001" if p < 0.001 else f"{p:.2f}" if p >= 0.1 else f"{p:.2g}"
