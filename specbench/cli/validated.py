"""What `validate` was asked to check, and the lines that say it is right."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.errors import UsageError
from specbench.settings.model_refs import resolve


def lines(
    path: str | None, target: str | None, drafts: Sequence[str], *, trust_remote_code: bool
) -> list[str]:
    """The lines of all that was named; what is wrong is raised."""
    if path is None and target is None:
        raise UsageError(
            "nothing to check is named",
            hint="specbench validate RECIPE, or specbench validate --target REF --draft SPEC",
        )
    found: list[str] = []
    if path is not None:
        from specbench.reports.listing import validated

        found.append(validated(path))
    if target is not None:
        resolve(target, "--target")
        from specbench.measure.pair_check import check_pair

        found += check_pair(target, drafts, trust_remote_code=trust_remote_code)
    return found
