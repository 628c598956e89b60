"""A result measured again: its recipe, and whether the new numbers agree within intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from specbench.comparison.compare import (
    CellChange,
    Comparison,
    adjusted_together,
    comparison,
    label,
)
from specbench.comparison.compare_report import name_of
from specbench.comparison.compare_words import NAMES, moved, p_text
from specbench.comparison.likeness import (
    Difference,
    changed,
    load_result,
    manifest_of_result,
    unlike,
)
from specbench.errors import UsageError
from specbench.estimators.changes import Change
from specbench.estimators.intervals import FEW_CLUSTERS
from specbench.judgement.view import mapping
from specbench.result_files.matched import Side
from specbench.settings.recipe import Recipe, recipe_from
from specbench.wording import count, one_line

HELD = ("alpha", "tau", "speedup")
"""What must agree: counts, and times relative to plain decoding of the same run."""
_MOST = 6


def recipe_of_result(folder: Path, *, trusted: bool = False) -> Recipe:
    """The recipe that a result was measured by; `run.json` is enough.

    Remote code that it ran is not run again unless that is asked for anew: the file may come
    from anybody.
    """
    stored = manifest_of_result(folder).get("recipe")
    path = folder / "run.json"
    if not isinstance(stored, dict) or not stored:
        raise UsageError(f"{path} holds no recipe", hint="a result that specbench run has written")
    measure = dict(mapping(stored, "measure"))
    if measure.pop("trust_remote_code", False) and not trusted:
        raise UsageError(
            f"{path} was measured with code of its models' repositories",
            where="measure.trust_remote_code: true",
            hint="--trust-remote-code, if you trust them",
        )
    data = cast("dict[str, Any]", {**stored, "measure": measure} if measure else stored)
    try:
        return recipe_from(data)
    except UsageError as fault:
        where = f"{path}: {fault.what}"
        raise UsageError(
            "the recipe cannot be read",
            where=where,
            hint=fault.hint
            or f"the specbench that wrote it{_version(folder)}, or without that key",
        ) from fault


def _version(folder: Path) -> str:
    found = mapping(manifest_of_result(folder), "environment").get("specbench")
    return f", {one_line(found)}" if isinstance(found, str) and found else ""


@contextmanager
def asked_by(folder: Path | None, device: str | None) -> Iterator[None]:
    """Say whose recipe asks for what is not here: its words were not typed. `device` may be."""
    try:
        yield
    except UsageError as fault:
        if folder is None:
            raise
        told = f"the recipe is that of {name_of(folder)}"
        where = "\n".join(part for part in (fault.where, told) if part)
        hint = fault.hint
        if device is None and fault.what.startswith("--device"):
            hint = "a machine that has it; elsewhere it is a run of its own, without --from"
        raise UsageError(fault.what, where=where, hint=hint) from fault


def refuse_another(folder: Path, manifest: Mapping[str, object]) -> None:
    """Refuse a run that would not repeat the result, before it is measured."""
    found = unlike(manifest_of_result(folder), manifest)
    if found:
        raise UsageError(
            f"this run would not repeat {name_of(folder)}",
            where="\n".join(f"{d.name}: {d.old} there / {d.new} now" for d in found),
            hint="the same prompts, dtype and device, or specbench run without --from",
        )


@dataclass(frozen=True)
class Agreement:
    """A result and its repetition."""

    found: Comparison
    """With the numbers of `HELD` alone, p adjusted over them."""

    @property
    def apart(self) -> list[tuple[CellChange, Change]]:
        """Numbers that differ beyond chance."""
        return [(cell, one) for cell in self.found.cells for one in cell.changes if one.side]

    @property
    def agrees(self) -> bool:
        """Whether no number differs beyond chance, and no cell is gone."""
        return not self.apart and not self.found.lonely


def agreement(old: Path, new: Path) -> Agreement | None:
    """Hold a repetition against the result; None where that is `run.json` alone."""
    if not (old / "generations.csv").exists():
        return None
    whole = comparison(Side(load_result(old)), Side(load_result(new)))
    cells = tuple(
        CellChange(cell.cell, tuple(c for c in cell.changes if c.metric.name in HELD))
        for cell in whole.cells
        if cell.cell.gamma
    )
    (found,) = adjusted_together([replace(whole, cells=cells)])
    return Agreement(found)


def alone(old: Path, new: Path) -> Iterator[str]:
    """What is said where nothing of the result is left but its recipe and its machine."""
    yield f"Repeats {name_of(old)}, which is run.json alone: there is nothing to compare with."
    yield from _differs(changed(manifest_of_result(old), manifest_of_result(new)))


def _differs(found: Sequence[Difference]) -> Iterator[str]:
    """What changed beside the numbers, the models' weights first."""
    first = sorted(found, key=lambda one: not one.name.startswith("weights"))
    if first:
        more = f", and {len(first) - _MOST} more" if len(first) > _MOST else ""
        yield "differs  " + ", ".join(one.line() for one in first[:_MOST]) + more


def told(found: Agreement) -> Iterator[str]:
    """What a repetition says of the result."""
    cells = found.found.cells
    numbers = [one for cell in cells for one in cell.changes]
    yield f"Repeats {name_of(found.found.old.run.folder)}"
    yield from _differs(found.found.changed)
    if found.agrees:
        least = min((c.p_adjusted for c in numbers if c.p_adjusted is not None), default=None)
        yield (
            f"The new numbers agree: α, τ and speedup of {count(len(cells), 'cell')}, none apart "
            f"beyond chance{f' (smallest p {p_text(least)})' if least is not None else ''}."
        )
        fewest = min((cell.cell.prompts for cell in cells), default=FEW_CLUSTERS)
        if fewest < FEW_CLUSTERS:
            yield f"Only {count(fewest, 'prompt')}: on so few, agreement says little."
        return
    yield "The new numbers do not agree."
    for cell, one in found.apart[:_MOST]:
        name = f"{label(cell.cell.old.block)}, γ {cell.cell.gamma}"
        yield f"{name}: {NAMES[one.metric.name]} {moved(one)}, p {p_text(one.p_adjusted)}"
    if len(found.apart) > _MOST:
        yield f"{len(found.apart) - _MOST} more: specbench compare"
    yield from found.found.lonely
