"""A result against its limits and against a baseline, decided by intervals.

Of each draft in each setting one cell is gated. Without a baseline it is the one that the verdict
of `run` names: the smallest γ that cannot be told from the fastest and reaches 98 % of it; its
intervals are widened for the choice among so many γ (Bonferroni). With a baseline it is the
fastest by the mean of all runs: for runs of one law that mean tells nothing of their differences,
so the choice does not bias the changes. `--gamma` names the cells instead, and nothing is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from specbench.comparison.check_plan import Gated, Plan, Wanted
from specbench.comparison.compare import Comparison, adjusted_together, comparison, label
from specbench.comparison.likeness import load_result
from specbench.errors import UsageError
from specbench.estimators.gates import (
    INCONCLUSIVE,
    MANY,
    MISSING,
    PASS,
    REGRESSION,
    Gate,
    confidence_for,
)
from specbench.judgement.view import mapping
from specbench.result_files.matched import Side
from specbench.settings.recipe_check import CheckConfig


@dataclass(frozen=True)
class Checked:
    """What a check found."""

    side: Side
    baselines: tuple[Comparison, ...]
    cells: tuple[Gated, ...]
    notes: tuple[str, ...]

    @cached_property
    def gates(self) -> list[Gate]:
        """All limits."""
        return [gate for cell in self.cells for gate in cell.gates]

    @property
    def decided(self) -> str:
        """One regression is one; else all must pass."""
        found = {gate.decided for gate in self.gates}
        if REGRESSION in found:
            return REGRESSION
        return PASS if found <= {PASS} else INCONCLUSIVE

    @property
    def missing(self) -> bool:
        """Whether something was not measured that has a limit: that is let through by nothing."""
        return any(gate.decided == MISSING for gate in self.gates)

    def exit_code(self, *, inconclusive_passes: bool) -> int:
        """0 pass, 3 regression, 4 inconclusive; missing is 4 in any case."""
        if self.decided == REGRESSION:
            return 3
        passes = inconclusive_passes and not self.missing
        return 0 if self.decided == PASS or passes else 4


def limits_of(side: Side, flags: CheckConfig) -> CheckConfig:
    """The recipe's limits with the flags over them."""
    recipe = mapping(side.run.manifest, "recipe")
    try:
        stored = CheckConfig.model_validate(mapping(recipe, "check"))
    except ValueError as fault:
        where = f"{side.run.folder / 'run.json'}: recipe.check"
        raise UsageError("the recipe's limits cannot be read", where=where) from fault
    given = {name: v for name, v in flags.model_dump().items() if v is not None}
    return stored.model_copy(update=given)


def check(folder: Path, baselines: Sequence[Path], wanted: Wanted) -> Checked:
    """Hold a result against limits and baselines."""
    return check_side(Side(load_result(folder)), [Side(load_result(b)) for b in baselines], wanted)


def check_side(side: Side, stored: Sequence[Side], wanted: Wanted) -> Checked:
    """The same of results that were read."""
    if 1 < len(stored) < MANY:
        raise UsageError(
            f"{len(stored)} baselines: their scatter cannot be told",
            hint=f"one baseline, paired by prompt, or {MANY} or more that show how runs scatter",
        )
    limits = limits_of(side, wanted.limits)
    found = [comparison(old, side, force=wanted.force) for old in stored]
    told = tuple(adjusted_together(found))
    plan = Plan(side, told, limits, wanted)
    cells = list(plan.cells())
    count = sum(len(specs) for _, specs in cells)
    if not count and not any(cell.gates for cell, _ in cells):
        raise UsageError(
            "there is no limit to check",
            where=(
                f"{side.run.folder}: --max-regression is from a baseline, and none is given"
                if limits.max_regression
                else f"{side.run.folder}: neither the recipe nor a flag gives one"
            ),
            hint="--min-speedup 1.5, --min-alpha 0.7, --max-tau-gap 5%, or --baseline DIR",
        )
    done = [
        replace(cell, gates=(*cell.gates, *(spec(confidence_for(count)) for spec in specs)))
        for cell, specs in cells
    ]
    return Checked(side, told, tuple(done), tuple(plan.notes()))


def seconds_per_prompt(side: Side) -> float:
    """What one more prompt would take in this recipe."""
    rows = side.run.generations
    whole = float(rows[["share_s", "prefill_s"]].sum().sum())
    return whole / max(1, int(rows["prompt_id"].nunique()))


def name_of_block(checked: Checked, cell: Gated) -> str:
    """The draft, with its setting where there are several."""
    several = len({one.block for one in checked.cells}) > 1
    return label(cell.block) if several else cell.draft
