"""What is missing in a run that did not come to its end."""

from __future__ import annotations

from collections.abc import Iterator

from specbench.recipe import expand
from specbench.view import View
from specbench.wording import count, gamma_set, one_line


def state_line(view: View) -> str:
    """How much of the run there is; empty for one that ended."""
    if view.run.finished:
        return ""
    made, expected = view.made(), view.expected()
    if expected is None:
        return f"{count(made, 'generation')}: made before the run ended"
    return f"{count(made)} of {count(expected, 'generation')}: made before the run ended"


def missing(view: View) -> Iterator[str]:
    """The cells that have no generation, by draft."""
    if view.recipe is None or view.run.finished:
        return
    there = set(view.run.generations["cell"])
    absent: dict[str, set[int]] = {}
    every: dict[str, set[int]] = {}
    for block in expand(view.recipe):
        for cell in block.cells:
            every.setdefault(cell.draft, set()).add(cell.gamma)
            if cell.id not in there:
                absent.setdefault(cell.draft, set()).add(cell.gamma)
    for draft, gammas in absent.items():
        part = f" γ {gamma_set(gammas, min(gammas) - 2)}" if gammas != every[draft] else ""
        yield f"missing: {one_line(draft)}{part}"
