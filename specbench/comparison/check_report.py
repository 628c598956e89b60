"""A check as people and programs see it: terminal, JSON, step summary."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from rich.cells import cell_len

from specbench.comparison.check import Checked
from specbench.comparison.check_plan import Gated
from specbench.comparison.check_words import (
    SHOWN,
    TONES,
    against,
    found,
    head,
    limit,
    sentences,
    summary,
    title,
    undecided,
)
from specbench.comparison.compare_report import differs, name_of
from specbench.estimators.gates import INCONCLUSIVE, MISSING, PASS, REGRESSION, Gate
from specbench.reports.markdown_text import escaped, table
from specbench.reports.tables import Column, Line, Table, cells
from specbench.reports.terminal import apart, console_for, laid, show, wrapped
from specbench.signs import Signs, write_out
from specbench.wording import count

_LIMIT = 8_000
"""Bytes of a step summary: what is longer is not read."""
_SIGNS = {PASS: "▲ pass", REGRESSION: "▼ **regression**", INCONCLUSIVE: "≈ inconclusive"}
_MOST = 12
_SHORT = 24
"""Columns that the name of a cell may take in the header of its table."""


def show_check(checked: Checked, *, output: str = "table", no_color: bool = False) -> None:
    """The check on stdout."""
    if output == "json":
        text = json.dumps(as_json(checked), indent=2, ensure_ascii=False, allow_nan=False)
        write_out(text + "\n")
    elif output == "md":
        write_out(step_summary(checked))
    else:
        console, signs = console_for(sys.stdout, no_color=no_color), Signs(sys.stdout)
        show(check_lines(checked, console.width, signs), console)


def check_lines(checked: Checked, width: int, signs: Signs) -> list[Line]:
    """Everything, in the order in which it is read."""
    top = [f"check    {name_of(checked.side.run.folder)}"]
    top += [f"against  {text}" for text in (against(checked),) if text]
    top += differs(checked.baselines[0]) if len(checked.baselines) == 1 else []
    sections: list[list[Line]] = [_hanging(top, width, signs)]
    for cell in checked.cells:
        name = head(checked, cell)
        fits = cell_len(name) <= _SHORT
        lines = laid(gate_table(cell, name if fits else f"γ {cell.gamma}"), width, signs)
        above = [] if fits else _hanging([name], width, signs)
        sections.append([*above, *lines])
    tone = TONES[checked.decided]
    last: list[Line] = [
        [(part, f"bold {tone}")] for part in wrapped(signs(summary(checked)), width)
    ]
    for text in sentences(checked):
        last += [[(part, "")] for part in wrapped(signs(text), width, "  ", "    ")]
    sections.append(last)
    told = [*checked.notes, intervals(checked)]
    if checked.decided == INCONCLUSIVE and not checked.missing:
        told.append("--inconclusive pass lets such a job go on.")
    sections.append([[(part, "dim")] for text in told for part in wrapped(signs(text), width)])
    return apart(sections)


def _hanging(texts: Sequence[str], width: int, signs: Signs) -> list[Line]:
    return [[(part, "")] for text in texts for part in wrapped(signs(text), width, "", " " * 9)]


def intervals(checked: Checked) -> str:
    """How sure the intervals are, and why."""
    number = len(checked.gates)
    return (
        f"Intervals are so wide that a check of {count(number, 'limit')} raises a false alarm in "
        "at most 1 of 100."
    )


def gate_table(cell: Gated, name: str) -> Table:
    """One row a limit."""
    gates = cell.gates
    columns = [
        Column(name, cells([title(g) for g in gates]), shrink=12),
        Column("found", cells([found(g) for g in gates])),
        Column("limit", cells([limit(g) for g in gates])),
        Column("decided", [[(SHOWN[g.decided], TONES[g.decided])] for g in gates]),
    ]
    return Table(columns, [""] * len(gates))


def as_json(checked: Checked) -> dict[str, object]:
    """The whole check as JSON has it."""
    return {
        "folder": name_of(checked.side.run.folder),
        "run_id": checked.side.run.manifest.get("run_id"),
        "baselines": [name_of(one.old.run.folder) for one in checked.baselines],
        "decided": checked.decided,
        "notes": list(checked.notes),
        "differs": [vars(d) for one in checked.baselines[:1] for d in one.changed],
        "cells": [
            {
                "draft": cell.draft,
                "temperature": float(str(cell.block[1])),
                "batch_size": int(str(cell.block[4])),
                "gamma": cell.gamma,
                "num_prompts": cell.prompts,
                "limits": [_gate(checked, gate) for gate in cell.gates],
            }
            for cell in checked.cells
        ],
    }


def _gate(checked: Checked, gate: Gate) -> dict[str, object]:
    """One limit, in full precision."""
    bounds = (gate.allowed.low, gate.allowed.high)
    least, most = (None if abs(b) == float("inf") else b for b in bounds)
    return {
        "name": gate.name,
        "change": gate.change,
        "value": gate.found.value,
        "low": gate.found.low,
        "high": gate.found.high,
        "at_least": least,
        "at_most": most,
        "decided": gate.decided,
        "prompts_needed": gate.prompts_needed if gate.decided == INCONCLUSIVE else None,
        "text": undecided(checked, gate) if gate.decided in (INCONCLUSIVE, MISSING) else "",
    }


def step_summary(checked: Checked) -> str:
    """The check for a pull request: the answer first, one screen, details folded."""
    parts = [f"### specbench: {checked.decided}"]
    said = list(sentences(checked))
    if said:
        parts.append(f"**{escaped(said[0])}** {' '.join(map(escaped, said[1:6]))}".rstrip())
    else:
        parts.append(f"**{escaped(summary(checked))}**")
    for cell in checked.cells[:_MOST]:
        rows = [
            [escaped(title(g)), escaped(found(g)), escaped(limit(g)), _signed(g)]
            for g in cell.gates
        ]
        parts.append(
            table(
                [escaped(head(checked, cell)), "found", "limit", ""],
                ["---", "--:", "--:", "---"],
                rows,
            )
        )
    if len(checked.cells) > _MOST:
        parts.append(f"{count(len(checked.cells) - _MOST, 'more cell')}: `specbench check`.")
    parts += [escaped(one.replace("  ", " ")) for c in checked.baselines[:1] for one in differs(c)]
    parts += [escaped(text) for text in (*checked.notes, intervals(checked))]
    parts.append(f"Repeat: `specbench run --from {_code(name_of(checked.side.run.folder))}`")
    return _clipped(parts)


def _signed(gate: Gate) -> str:
    return _SIGNS.get(gate.decided, "≈ missing")


def _code(text: str) -> str:
    """Text that a span of code can hold."""
    return text.replace("`", "'")


def _clipped(parts: Sequence[str]) -> str:
    """As many parts as fit; whole ones, so that no table is cut."""
    text = parts[0]
    for part in parts[1:]:
        if len((text + part).encode()) > _LIMIT - 100:
            return f"{text}\n\nCut for length: `specbench check` shows all.\n"
        text += f"\n\n{part}"
    return f"{text}\n"
