"""tables.tex: foreign text has no meaning there, and every row has its columns."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from sample_run import Draft, build

from specbench.reports.latex import escaped
from specbench.reports.report import report


def test_foreign_text_has_no_meaning_in_latex() -> None:
    evil = r"\input{/etc/passwd} 50 % $x_1^2$ #a & b ~ {c} <d> 模型 é"
    assert escaped(evil) == (
        r"\textbackslash{}input\{/etc/passwd\} 50 \% \$x\_1\textasciicircum{}2\$ \#a \& b "
        r"$\sim$ \{c\} $<$d$>$ ?? é"
    )
    assert escaped("α 0.8, τ 3 × −1 – γ\n\x1b[0m") == (
        r"$\alpha$ 0.8, $\tau$ 3 $\times$ $-$1 -- $\gamma$ [0m"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drafts = {"[a]_{b}": Draft(), "100 % \\evil": Draft(alpha=0.3, fails_at={3: "no & room"})}
    run = build(
        tmp_path_factory.mktemp("runs") / "run", drafts, gammas=[1, 3], prompts=9, tokens=32
    )
    report(run, paper=True, stream=io.StringIO(), notes=io.StringIO())
    return run


def test_paper_writes_tables_and_one_column_charts(folder: Path) -> None:
    text = (folder / "tables.tex").read_text(encoding="utf-8")
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 3
    assert (folder / "plots" / "speedup_vs_gamma-paper.pdf").exists()
    width = re.search(
        r'width="([\d.]+)pt"', (folder / "plots" / "speedup_vs_gamma-paper.svg").read_text()
    )
    assert width is not None
    # One column of a two-column page is about 3.35 inches.
    assert float(width[1]) / 72 == pytest.approx(3.35)


def test_every_row_has_its_columns_and_braces_are_even(folder: Path) -> None:
    text = (folder / "tables.tex").read_text(encoding="utf-8")
    bare = re.sub(r"\\[{}&%#$_\\]", "", re.sub(r" \\\\\n", "\n", text))
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    found = 0
    for columns, body in re.findall(
        r"\\begin\{tabular\}\{([lr]+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL
    ):
        for line in body.splitlines():
            if not line.strip().startswith("{}"):
                assert line.strip() in ("\\hline", "")
                continue
            cells = len(re.findall(r"(?<!\\)&", line)) + 1
            wide = re.search(r"\\multicolumn\{(\d+)\}", line)
            assert cells + (int(wide[1]) - 1 if wide else 0) == len(columns), line
            found += 1
    assert found == 1 + 2 + 2 * (1 + 3)
    assert r"failed: no \& room" in text


def test_tables_are_written_for_papers_alone(tmp_path: Path) -> None:
    run = build(tmp_path / "r", {"a": Draft()}, gammas=[1], prompts=2, tokens=8)
    report(run, stream=io.StringIO(), notes=io.StringIO())
    assert not (run / "tables.tex").exists()
