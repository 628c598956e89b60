"""The limits that a recipe or flags give to `check`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, ValidationError

from specbench.errors import UsageError
from specbench.settings.recipe_faults import described
from specbench.settings.recipe_values import Range, number, share


class CheckConfig(BaseModel):
    """Thresholds of `check`; a share may be given as percent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_speedup: Annotated[float | None, number(Range(0, whole=False))] = None
    min_alpha: Annotated[float | None, number(Range(0, 1, whole=False))] = None
    max_tau_gap: Annotated[float | None, share(Range(0, whole=False))] = None
    """Of τ from the closed form, either way, as a share of τ."""
    max_regression: Annotated[float | None, share(Range(0, 1, whole=False, below=True))] = None
    """Change for the worse against a baseline, as a share of what it was."""


_EXAMPLES = {
    "min_speedup": "--min-speedup 1.5",
    "min_alpha": "--min-alpha 0.7",
    "max_tau_gap": "--max-tau-gap 5%",
    "max_regression": "--max-regression 3%",
}


def limits_of(flags: Mapping[str, object]) -> CheckConfig:
    """The limits that flags give; None is a flag that was not given."""
    given = {name: flags[name] for name in CheckConfig.model_fields if flags[name] is not None}
    try:
        return CheckConfig.model_validate(given)
    except ValidationError as error:
        first = described(error.errors()[0])
        flag = f"--{str(first.loc[0]).replace('_', '-')}"
        raise UsageError(f"{flag}: {first.message}", hint=_EXAMPLES[str(first.loc[0])]) from error
