"""What is missing in a run that did not end, or whose files were cut; what was changed in one."""

from __future__ import annotations

from collections.abc import Iterator

from specbench.judgement.view import View
from specbench.settings.recipe import expand
from specbench.wording import count, gamma_range, one_line


def state_line(view: View) -> str:
    """How much of the run there is; empty for one that ended, is whole, and as it was written."""
    made, wanted = view.made(), _wanted(view)
    expected = None if wanted is None else sum(wanted.values())
    if view.run.finished:
        if expected is None or made >= expected:
            names = ", ".join(view.changed)
            return f"changed since the run ended, and its numbers made anew: {names}" * bool(names)
        found = f"{count(made)} of {count(expected, 'generation')}"
        return f"{found} in the files: rows are missing, although the run ended"
    if expected is None:
        return f"{count(made, 'generation')}: made before the run ended"
    return f"{count(made)} of {count(expected, 'generation')}: made before the run ended"


def missing(view: View) -> Iterator[str]:
    """The cells that have no generation, by draft."""
    wanted = _wanted(view)
    if view.recipe is None or wanted is None:
        return
    there = set(view.run.generations["cell"])
    absent: dict[str, set[int]] = {}
    every: dict[str, set[int]] = {}
    for block in expand(view.recipe):
        for cell in block.cells:
            every.setdefault(cell.draft, set()).add(cell.gamma)
            if cell.id not in there and wanted[cell.id]:
                absent.setdefault(cell.draft, set()).add(cell.gamma)
    for draft, gammas in absent.items():
        part = f" γ {gamma_range(gammas)}" if gammas != every[draft] else ""
        yield f"missing: {one_line(draft)}{part}"


def _wanted(view: View) -> dict[str, int] | None:
    """Generations that each cell must have by now; None where the recipe cannot be read.

    In a run that ended a refused cell has what it has: no more is to come.
    """
    if view.recipe is None:
        return None
    cells = [cell for block in expand(view.recipe) for cell in block.cells]
    each = dict.fromkeys((cell.id for cell in cells), view.per_cell(view.recipe))
    if not view.run.finished:
        return each
    rows = view.run.generations
    made = rows[rows["group"] >= 0].groupby("cell").size()
    off, refused = view.refused_drafts(), set(rows.loc[rows["group"] < 0, "cell"])
    final = {c.id for c in cells if c.draft in off or c.id in refused}
    return each | {cell: int(made.get(cell, 0)) for cell in final}
