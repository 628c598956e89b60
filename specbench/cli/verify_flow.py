"""From the flags of `verify` to a verdict."""

from __future__ import annotations

from typing import Any

from specbench.cli.run_flow import opened, recipe_of, refuse_absent, refuse_lengths
from specbench.engine_table import ENGINES
from specbench.errors import UsageError
from specbench.result_files.results import read_manifest
from specbench.settings.engine_limits import refuse_unable
from specbench.settings.recipe import Recipe, merge_flags
from specbench.settings.recipe_values import CONFIG
from specbench.signs import write_out

GAMMA, DTYPE = "4", "float32"
"""Where neither flags nor a recipe say otherwise."""


def verify_flow(flags: dict[str, Any]) -> int:
    """Verify, report, and return the exit code: 0, 3 or 4."""
    recipe = _with_defaults(recipe_of(flags), flags)
    refuse_lengths(recipe)
    if len(recipe.measure.engine) > 1:
        names = ",".join(recipe.measure.engine)
        raise UsageError(
            f"--engine {names}: one engine at a time here",
            hint=f"specbench verify --engine {recipe.measure.engine[0]}, and again for the others",
        )
    refuse_unable(recipe, drafts=not flags["keep_going"])
    if recipe.target.ref.startswith(CONFIG):
        what = "random weights have no law to verify: what they emit is as set as their acceptance"
        raise UsageError(what, where=f"--target {recipe.target.ref}", hint="real weights")
    if not any(recipe.gamma):
        raise UsageError("--gamma 0: there is nothing to verify", hint="--gamma 4")
    result = flags["result"]
    if result is not None:
        read_manifest(result)
    refuse_absent(recipe, keep_going=flags["keep_going"])
    from specbench.verification.verify import run_verify
    from specbench.verification.verify_record import record, refuse_foreign
    from specbench.verification.verify_words import as_text, print_verified

    ready, progress = opened(recipe, flags)
    if result is not None:
        refuse_foreign(result, ready)
    found = run_verify(ready, flags["samples"], progress.say)
    if result is not None:
        record(result, found)
    output = flags["output_format"].value
    if output == "table":
        print_verified(found, quiet=flags["quiet"], no_color=flags["no_color"])
    else:
        write_out(as_text(found, output))
    return found.exit_code


def _with_defaults(recipe: Recipe, flags: dict[str, Any]) -> Recipe:
    """Rounding of half precision looks like a small fault, so it has to be asked for."""
    changes: dict[str, object] = {}
    takes = [ENGINES[name].dtypes for name in recipe.measure.engine]
    if recipe.measure.dtype is None and all(some is None or DTYPE in some for some in takes):
        changes["dtype"] = DTYPE
    if flags["gamma"] is None and flags["recipe"] is None:
        changes["gamma"] = GAMMA
    return merge_flags(recipe, changes) if changes else recipe
