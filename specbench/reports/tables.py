"""Lines of styled text, and tables made of them: aligned, ruled under the header, cut by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rich.cells import cell_len

Span = tuple[str, str]
"""Text and its style; the empty style is plain."""
Line = list[Span]
Spell = Callable[[str], str]
"""Text as the stream can show it."""
GAP = "  "


@dataclass(frozen=True)
class Column:
    """One column: header, a cell per row, and how it gives way."""

    name: str
    cells: list[list[Span]]
    right: bool = False
    marked: bool = False
    """Whether the first span of a cell is a mark, which stays at the left edge."""
    shrink: int = 0
    """The width down to which its texts may be cut in their middle; 0: never."""
    drop: int = 0
    """The order in which columns are left out where the table is too wide; 0: never."""

    def width(self) -> int:
        """Of the widest cell."""
        return max([cell_len(self.name), *(length(cell) for cell in self.cells)])


@dataclass(frozen=True)
class Table:
    """Columns, a style per row, and rows whose later columns are one text."""

    columns: list[Column]
    styles: list[str] = field(default_factory=list)
    free: dict[int, Span] = field(default_factory=dict)
    """Row to a text that stands in place of all columns but the first, and may be cut."""

    def width(self) -> int:
        """Of the whole table."""
        return sum(c.width() for c in self.columns) + len(GAP) * (len(self.columns) - 1)


def cells(texts: Sequence[str], style: str = "") -> list[list[Span]]:
    """One plain span a cell."""
    return [[(text, style)] for text in texts]


def flowed(parts: Sequence[str], width: int, gap: str = "   ") -> list[str]:
    """Parts side by side, on as many lines as they need; no part is broken."""
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(lines[-1]) + len(gap) + cell_len(part) <= width:
            lines[-1] += gap + part
        else:
            lines.append(part)
    return lines


def length(line: Sequence[Span]) -> int:
    """Columns of the terminal that a line takes."""
    return sum(cell_len(text) for text, _ in line)


def plain(line: Sequence[Span]) -> str:
    """A line without its styles."""
    return "".join(text for text, _ in line)


def spelled(table: Table, spell: Spell) -> Table:
    """The table in the signs of a stream: to be done before anything is measured."""
    columns = [
        replace(c, name=spell(c.name), cells=[[(spell(t), s) for t, s in cell] for cell in c.cells])
        for c in table.columns
    ]
    return replace(
        table, columns=columns, free={row: (spell(t), s) for row, (t, s) in table.free.items()}
    )


def fitted(table: Table, width: int, dots: str = "…") -> Table:
    """The table made to fit: names are cut first, then columns are left out."""
    for order in (0, *sorted({c.drop for c in table.columns if c.drop})):
        table = replace(table, columns=[c for c in table.columns if not order or c.drop != order])
        shrunk = _shrunk(table, width, dots)
        if shrunk.width() <= width:
            return shrunk
    return _shrunk(table, width, dots)


def _shrunk(table: Table, width: int, dots: str) -> Table:
    excess = table.width() - width
    if excess <= 0:
        return table
    columns = []
    for column in table.columns:
        size = max(column.shrink, column.width() - excess) if column.shrink else column.width()
        excess -= column.width() - size
        columns.append(_cut_column(column, size, dots))
    return replace(table, columns=columns)


def _cut_column(column: Column, size: int, dots: str) -> Column:
    if size >= column.width():
        return column
    texts = distinct([plain(cell) for cell in column.cells], size, dots)
    styles = [cell[0][1] if cell else "" for cell in column.cells]
    return replace(column, cells=[[pair] for pair in zip(texts, styles, strict=True)])


def distinct(texts: Sequence[str], size: int, dots: str = "…") -> list[str]:
    """Texts cut in their middle; unlike ones that would become alike are numbered."""
    cut = [middle_cut(text, size, dots) for text in texts]
    out = []
    for text, short in zip(texts, cut, strict=True):
        alike = list(dict.fromkeys(t for t, s in zip(texts, cut, strict=True) if s == short))
        number = f" #{alike.index(text) + 1}" if len(alike) > 1 else ""
        out.append(middle_cut(text, size - len(number), dots) + number if number else short)
    return out


def middle_cut(text: str, size: int, dots: str = "…") -> str:
    """A name cut in its middle to a width in columns."""
    if cell_len(text) <= size:
        return text
    keep = max(size - len(dots), 0)
    while True:
        head, tail = text[: keep // 2], text[len(text) - (keep - keep // 2) :]
        cut = (head + dots + tail)[: max(size, 0)] if keep < 2 else head + dots + tail
        if cell_len(cut) <= size or keep <= 0:
            return cut
        keep -= 1


def end_cut(text: str, size: int, dots: str = "…") -> str:
    """Words cut at their end to a width in columns."""
    if cell_len(text) <= size:
        return text
    while text and cell_len(text) + len(dots) > size:
        text = text[:-1]
    return (text.rstrip() + dots)[: max(size, 0)]


def drawn(table: Table, width: int, dash: str = "─", dots: str = "…") -> list[Line]:
    """The table's lines: header, rule, rows."""
    sizes = [column.width() for column in table.columns]
    header = [_padded([(c.name, "dim")], n, c) for c, n in zip(table.columns, sizes, strict=True)]
    whole = min(table.width(), width)
    lines = [_joined(header), [(dash * whole, "")]]
    for row, style in enumerate(table.styles):
        if row in table.free:
            first = _padded(table.columns[0].cells[row], sizes[0], table.columns[0])
            text, own = table.free[row]
            room = width - sizes[0] - len(GAP)
            lines.append([*_styled(first, style), (GAP, ""), (end_cut(text, room, dots), own)])
            continue
        found = [
            _padded(c.cells[row], size, c) for c, size in zip(table.columns, sizes, strict=True)
        ]
        lines.append(_styled(_joined(found), style))
    return [_stripped(line) for line in lines]


def _padded(cell: list[Span], size: int, column: Column) -> Line:
    space = (" " * (size - length(cell)), "")
    if column.marked and len(cell) > 1:
        return [cell[0], space, *cell[1:]]
    return [space, *cell] if column.right else [*cell, space]


def _joined(row: Sequence[Line]) -> Line:
    line: Line = []
    for place, cell in enumerate(row):
        line += [(GAP, "")] * (place > 0) + cell
    return line


def _styled(line: Line, style: str) -> Line:
    """The row's style under that of each span."""
    return [(text, f"{style} {own}".strip()) for text, own in line]


def _stripped(line: Line) -> Line:
    """Without spaces at the end, so that logs stay small and lines short."""
    line = [span for span in line if span[0]]
    while line and not line[-1][0].rstrip():
        line.pop()
    if line:
        text, style = line[-1]
        line[-1] = (text.rstrip(), style)
    return line


def records(table: Table) -> list[Line]:
    """One `name: value` line per filled cell, for terminals too narrow for any table."""
    lines: list[Line] = []
    for row, style in enumerate(table.styles):
        lines += [[]] if lines else []
        for place, column in enumerate(table.columns):
            value = " ".join(plain(column.cells[row]).split())
            if place and row in table.free:
                lines.append([table.free[row]])
                break
            if value:
                own = column.cells[row][0][1]
                lines.append([(f"{column.name}: ", "dim"), (value, f"{style} {own}".strip())])
    return lines
