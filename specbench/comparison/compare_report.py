"""A comparison as people and programs see it: terminal, Markdown, CSV, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from specbench.comparison.compare import CellChange, Comparison, label
from specbench.comparison.compare_words import change_table, others, rows_of, sentences, tone
from specbench.comparison.likeness import Difference
from specbench.errors import UsageError
from specbench.estimators.changes import Change
from specbench.estimators.intervals import FEW_CLUSTERS
from specbench.judgement.view import mapping
from specbench.records import CELL_KEYS
from specbench.reports.markdown_text import drawn, escaped
from specbench.reports.tables import Line
from specbench.reports.terminal import apart, console_for, laid, show, wrapped
from specbench.result_files import files
from specbench.settings.places import portable
from specbench.signs import Signs, write_out
from specbench.wording import count, one_line

COLUMNS: Final = (
    "old",
    "new",
    "cell",
    *CELL_KEYS,
    "num_prompts",
    "paired",
    "metric",
    "old_value",
    "new_value",
    "relative",
    "change",
    "change_low",
    "change_high",
    "p_value",
    "p_adjusted",
    "verdict",
)
"""`change` is new/old − 1 where `relative`, else new − old; `verdict` is better, worse or empty."""
_MOST = 8
"""Differences that are named; the rest are counted."""


def show_comparisons(
    found: Sequence[Comparison],
    *,
    output: str = "table",
    all_cells: bool = False,
    no_color: bool = False,
) -> None:
    """All comparisons on stdout, in one of the formats."""
    if output == "csv":
        rows = [row for one in found for row in change_rows(one)]
        text = files.csv_line(COLUMNS) + "".join(
            files.csv_line(row[name] for name in COLUMNS) for row in rows
        )
        write_out(text)
    elif output == "json":
        told = {"comparisons": [as_json(one) for one in found]}
        write_out(json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    elif output == "md":
        write_out("\n\n".join(markdown(one, all_cells=all_cells) for one in found) + "\n")
    elif output == "table":
        console, signs = console_for(sys.stdout, no_color=no_color), Signs(sys.stdout)
        sections = [
            comparison_lines(one, console.width, signs, all_cells=all_cells, named=len(found) > 1)
            for one in found
        ]
        show(apart(sections), console)
    else:
        raise UsageError(f'--format "{output}": no such format', hint="table, csv, json, md")


def name_of(folder: Path) -> str:
    """A folder as a line of text, without the home folder's name."""
    return one_line(portable(str(folder)))


def differs(found: Comparison) -> list[str]:
    """What is not the same in both runs, first what should be; empty if nothing is."""
    lines = []
    if found.unlike:
        lines.append("unlike   " + _list(found.unlike, "/"))
    if found.changed:
        lines.append("differs  " + _list(found.changed, "→"))
    return lines


def _list(every: Sequence[Difference], sign: str) -> str:
    shown = [one.line(sign) for one in every[:_MOST]]
    rest = len(every) - len(shown)
    return ", ".join([*shown, *([f"{rest} more (--format json)"] if rest else [])])


def same(found: Comparison, shown: Sequence[CellChange]) -> str:
    """What both runs share; of the prompts those that the shown cells are paired by."""
    prompts = mapping(found.new.run.manifest, "prompts")
    unlike = {one.name for one in found.unlike}
    names = ("dtype", "device", "baseline", "forward mode")
    parts = [name for name in names if name not in unlike]
    paired = [one.cell.prompts for one in shown if one.cell.paired is not None]
    if "prompts" not in unlike and paired:
        amount = count(min(paired), "paired prompt")
        parts.insert(0, f"{amount} ({one_line(str(prompts.get('hash')))[:4]})")
    if not any(one.name.startswith("sampling.") for one in found.changed):
        parts.insert(1 if parts else 0, "sampling")
    return "same     " + ", ".join(parts) if parts else ""


def notes(found: Comparison, shown: Sequence[CellChange]) -> Iterator[str]:
    """What a reader must know of the numbers."""
    if not found.interleaved:
        where = "two runs" if found.same_machine else "two runs on unlike machines"
        yield (
            f"ms are of {where}: their intervals cover prompts, not what the machine did in "
            "between. The speedup is relative to each run's own plain decoding."
        )
    if any(one.cell.paired is None for one in shown):
        yield "The runs have no prompt in common: intervals are those of two samples."
    else:
        fewest = min(one.cell.prompts for one in shown)
        most = max(len(found.old.run.prompts), len(found.new.run.prompts))
        if fewest < most:
            yield f"Compared on {count(fewest, 'prompt')} that are whole in both, of {count(most)}."
        if fewest < FEW_CLUSTERS:
            yield f"Only {count(fewest, 'prompt')}: take the intervals as rough."
    yield from found.lonely


def comparison_lines(
    found: Comparison, width: int, signs: Signs, *, all_cells: bool = False, named: bool = False
) -> list[Line]:
    """Everything of one comparison, in the order in which it is read."""
    head = []
    if named:
        old, new = name_of(found.old.run.folder), name_of(found.new.run.folder)
        head = [f"old      {old}", f"new      {new}"]
    seen = shown_cells(found, all_cells=all_cells)
    top = [*head, *differs(found), same(found, seen)]
    sections: list[list[Line]] = [_wrapped([line for line in top if line], width, signs)]
    for block, every in found.blocks.items():
        named_ = found.named(block)
        shown = every if all_cells else named_
        several = len(found.blocks) > 1
        for one in shown:
            name = label(block) if several else one_line(one.cell.draft)
            head_ = f"{name}, γ {one.cell.gamma}"
            sections.append(laid(change_table(head_, rows_of(found, one)), width, signs))
        rest = "" if all_cells else others(every, named_)
        sides = {one.side for one in named_}
        side = sides.pop() if len(sides) == 1 else 0
        said = [
            [(part, f"bold {tone(side)}".strip())]
            for s in sentences(found, block)
            for part in wrapped(signs(s), width)
        ]
        sections.append([*_wrapped([rest] if rest else [], width, signs), *said])
    sections.append(
        [[(part, "dim")] for n in notes(found, seen) for part in wrapped(signs(n), width)]
    )
    return apart(sections)


def shown_cells(found: Comparison, *, all_cells: bool) -> list[CellChange]:
    """The cells whose numbers are shown: those of the γ that the runs' verdicts name, or all."""
    return [
        one
        for block, every in found.blocks.items()
        for one in (every if all_cells else found.named(block))
    ]


def _wrapped(texts: Sequence[str], width: int, signs: Signs) -> list[Line]:
    """Lines under a word of nine columns, which stands free at their left."""
    return [[(part, "")] for text in texts for part in wrapped(signs(text), width, "", " " * 9)]


def markdown(found: Comparison, *, all_cells: bool = False) -> str:
    """One comparison for a pull request."""
    seen = shown_cells(found, all_cells=all_cells)
    top = (*differs(found), same(found, seen))
    parts = [escaped(line.replace("  ", " ")) for line in top if line]
    for block, every in found.blocks.items():
        named = found.named(block)
        shown = every if all_cells else named
        parts += [f"**{escaped(text)}**" for text in sentences(found, block)]
        for one in shown:
            name = f"{label(block)}, γ {one.cell.gamma}"
            parts.append(drawn(change_table(name, rows_of(found, one))))
        rest = "" if all_cells else others(every, named)
        parts += [escaped(rest)] if rest else []
    parts += [escaped(text) for text in notes(found, seen)]
    old, new = (escaped(name_of(side.run.folder)) for side in (found.old, found.new))
    return "\n\n".join([f"### specbench: {old} → {new}", *parts])


def change_rows(found: Comparison) -> Iterator[dict[str, object]]:
    """One row a cell and number, those of plain decoding too."""
    for one in found.cells:
        first = one.cell.old.rows.iloc[0]
        keys = {name: first[name] for name in CELL_KEYS}
        context = keys["context_length"]
        keys["context_length"] = None if context != context else int(context)
        about = {
            "old": name_of(found.old.run.folder),
            "new": name_of(found.new.run.folder),
            "cell": one.cell.cell,
            **keys,
            "num_prompts": one.cell.prompts,
            "paired": one.cell.paired is not None,
        }
        for each in one.changes:
            yield {**about, **_numbers(each)}


def _numbers(one: Change) -> dict[str, object]:
    return {
        "metric": one.metric.name,
        "old_value": one.old,
        "new_value": one.new,
        "relative": one.metric.relative,
        "change": one.found.value,
        "change_low": one.found.low,
        "change_high": one.found.high,
        "p_value": one.p_value,
        "p_adjusted": one.p_adjusted,
        "verdict": {1: "better", -1: "worse"}.get(one.side, ""),
    }


def as_json(found: Comparison) -> dict[str, object]:
    """One comparison as JSON has it."""
    told = [
        {
            "draft": label(block),
            "gamma": found.named(block)[0].cell.gamma,
            "chosen": [one.row.gamma if one else None for one in found.choices(block)],
            "text": " ".join(sentences(found, block)),
        }
        for block in found.blocks
    ]
    return {
        "old": name_of(found.old.run.folder),
        "new": name_of(found.new.run.folder),
        "interleaved": found.interleaved,
        "unlike": [vars(one) for one in found.unlike],
        "changed": [vars(one) for one in found.changed],
        "only_in_one": found.lonely,
        "verdict": told,
        "rows": [_plain(row) for row in change_rows(found)],
    }


def _plain(row: dict[str, object]) -> dict[str, object]:
    """Numbers of numpy as JSON takes them."""
    return {k: v.item() if hasattr(v, "item") else v for k, v in row.items()}
