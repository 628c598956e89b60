"""`run --show-cycles N`: the first cycles of each draft's chosen cell, token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from specbench.errors import clean
from specbench.judgement.advise import Advice
from specbench.result_files.results import read_cycles

Decode = Callable[[Sequence[int]], str]


def cycle_lines(advice: Advice, count: int, decode: Decode) -> Iterator[str]:
    """For each chosen cell: what was drafted, what was kept, and what the target put behind it."""
    for finding in advice.findings:
        for one in finding.drafts:
            if one.choice is not None:
                cell = str(one.choice.row.part.rows["cell"].iloc[0])
                yield from _cell(advice.view.run.folder, cell, count, decode)


def _cell(folder: Path, cell: str, count: int, decode: Decode) -> Iterator[str]:
    rows = _first(folder, cell, count)
    if rows:
        yield f"cell {cell}, prompt {clean(str(rows[0]['prompt_id']))}"
    for row in rows:
        drafted, emitted, kept = row["drafted_ids"], row["emitted_ids"], int(row["num_accepted"])
        words = [_word(decode, i) for i in drafted]
        behind = " ".join(_word(decode, i) for i in emitted[kept:]) or "nothing"
        name = "bonus" if kept == len(drafted) else "correction"
        yield (
            f"{int(row['index']):>4}  kept {kept} of {len(drafted)}: {' '.join(words[:kept])} "
            f"| {' '.join(words[kept:])} → {name} {behind}"
        )


def _first(folder: Path, cell: str, count: int) -> list[dict[Any, Any]]:
    """The first cycles of the cell's first generation."""
    columns = ("cell", "prompt_id", "repeat", "index", "drafted_ids", "num_accepted", "emitted_ids")
    for table in read_cycles(folder, columns):
        rows: list[dict[Any, Any]] = table[table["cell"] == cell].to_dict("records")
        if rows:
            key = (rows[0]["prompt_id"], rows[0]["repeat"])
            same = [r for r in rows if (r["prompt_id"], r["repeat"]) == key]
            return sorted(same, key=lambda r: int(r["index"]))[:count]
    return []


def _word(decode: Decode, token: int) -> str:
    # The text of a special token is left out by the engine: its id stands for it.
    text = clean(decode([token]))
    return repr(text) if text else f"<{token}>"
