"""tables.tex for a paper: the drafts, and all γ of each, in plain LaTeX without packages."""

from __future__ import annotations

from collections.abc import Iterator

from specbench.judgement.advise import Advice
from specbench.reports.block_table import NORMAL, block_table, constants, drafts_table, legend
from specbench.reports.tables import Table, plain
from specbench.wording import one_line

_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"$\sim$",
    "<": "$<$",
    ">": "$>$",
    "=": "$=$",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    "γ": r"$\gamma$",
    "α": r"$\alpha$",
    "τ": r"$\tau$",
    "×": r"$\times$",
    "−": "$-$",
    "–": "--",
    "…": r"\ldots{}",
}
_LAST_LETTER = 0x17F
"""Latin letters with their accents, which every LaTeX of today reads as they are."""


def escaped(text: str) -> str:
    """Foreign text on one line, without meaning in LaTeX; signs it may not know become `?`."""
    return "".join(_SIGNS.get(c, c if ord(c) <= _LAST_LETTER else "?") for c in one_line(text))


def tables_latex(advice: Advice) -> str:
    r"""Every table as a `table` environment, to be read by `\input{tables.tex}`."""
    return "\n".join(_all(advice))


def _all(advice: Advice) -> Iterator[str]:
    yield "% Written by specbench report --style paper: read it by \\input{tables.tex}."
    if any(finding.drafts for finding in advice.findings):
        said = (
            f"Drafts for {one_line(advice.view.target)}, best first; 95 % intervals over prompts."
        )
        yield _environment(drafts_table(advice.view, advice.findings), said, "drafts")
    for finding in advice.findings:
        for place, one in enumerate(finding.drafts):
            title = advice.view.title(finding.setting)
            name = f"{one_line(one.block.draft)}{f', {title}' if title else ''}"
            said = f"{name}: {constants(advice.view, one.block)}. {'; '.join(legend(one, NORMAL))}."
            label = f"gamma-{advice.findings.index(finding)}-{place}"
            yield _environment(block_table(one, NORMAL), said, label)


def _environment(table: Table, caption: str, label: str) -> str:
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escaped(caption)}}}",
        rf"  \label{{tab:specbench-{label}}}",
        rf"  \begin{{tabular}}{{{''.join('r' if c.right else 'l' for c in table.columns)}}}",
        r"    \hline",
        _row([column.name for column in table.columns]),
        r"    \hline",
        *(_cells(table, row) for row in range(len(table.styles))),
        r"    \hline",
        r"  \end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _cells(table: Table, row: int) -> str:
    if row in table.free:
        first = plain(table.columns[0].cells[row])
        wide = rf"\multicolumn{{{len(table.columns) - 1}}}{{l}}"
        return rf"    {{}}{escaped(first)} & {wide}{{{escaped(table.free[row][0])}}} \\"
    return _row([plain(column.cells[row]) for column in table.columns])


def _row(texts: list[str]) -> str:
    # The empty group keeps a bracket from being read as an option of the line break before it.
    return rf"    {{}}{' & '.join(map(escaped, texts))} \\"
