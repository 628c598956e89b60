"""What a recipe asks of an engine that cannot do it: refused before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from specbench.engine_table import ENGINES, OWN, EngineRow
from specbench.errors import UsageError
from specbench.settings.recipe import Recipe
from specbench.settings.recipe_values import CONFIG, did_you_mean

Refusal = tuple[str, str]
"""What cannot be done, and what to try."""


def refuse_unable(recipe: Recipe) -> None:
    """Refuse what one of the recipe's engines cannot run, and arguments that it does not take."""
    for name in recipe.measure.engine:
        row = ENGINES[name]
        for what, hint in (*_pair(row, recipe), *_laws(row, recipe), *_machine(row, recipe)):
            raise UsageError(f"--engine {name}: {what}", where=f"{name}: {row.runs}", hint=hint)
    _refuse_arguments(recipe)


def refuse_other(recipe: Recipe, what: str) -> None:
    """Refuse every engine but our own, for what is done in our own loop alone."""
    for name in recipe.measure.engine:
        if name != OWN:
            raise UsageError(
                f"--engine {name}: {what} in our own loop alone",
                hint=f"--engine {OWN}, or specbench run --engine {name}",
            )


def _pair(row: EngineRow, recipe: Recipe) -> Iterator[Refusal]:
    for spec in recipe.drafts:
        # At γ = 0 alone nothing is drafted, and `self` stands for no draft.
        if row.drafts is not None and spec.kind not in row.drafts and any(recipe.gamma):
            yield (
                f"no draft of kind {spec.kind} ({spec.label})",
                f"one of {', '.join(row.drafts)}, or --engine {OWN}",
            )
    if recipe.target.ref.startswith(CONFIG) and not row.random_weights:
        yield "no random weights", f"--engine {OWN}, or a real --target"


def _laws(row: EngineRow, recipe: Recipe) -> Iterator[Refusal]:
    laws = recipe.sampling
    if not row.sampled and any(laws.temperature):
        yield "greedy decoding alone", "--temperature 0"
    if not row.filters and any(laws.temperature) and (any(laws.top_k) or min(laws.top_p) < 1):
        yield "no top-k and no top-p", "--top-k 0 --top-p 1"


def _machine(row: EngineRow, recipe: Recipe) -> Iterator[Refusal]:
    measure = recipe.measure
    if not row.batches and max(measure.batch_size) > 1:
        yield "one prompt at a time", "--batch-size 1"
    if not row.forwards and measure.forward != "eager":
        yield f"no forward mode {measure.forward}, it has its own", "without --forward"
    for flag, dtype in (("--dtype", measure.dtype), ("--draft-dtype", measure.draft_dtype)):
        if dtype is not None and row.dtypes is not None and dtype not in row.dtypes:
            known = f"{flag} {' or '.join(row.dtypes)}" if row.dtypes else f"without {flag}"
            yield f"no {flag} {dtype}", known


def _refuse_arguments(recipe: Recipe) -> None:
    """An argument has to be one that each engine of the recipe, or the only one, takes."""
    rows = [ENGINES[name] for name in recipe.measure.engine]
    known = {option for row in rows for option in row.options}
    for argument in recipe.measure.engine_args:
        name = argument.partition("=")[0]
        if name in known or any(row.any_options for row in rows):
            continue
        ends = did_you_mean(name, known, otherwise=f" (they take {', '.join(sorted(known))})")
        names = ", ".join(row.name for row in rows)
        raise UsageError(
            f"--engine-arg {argument}: {names} takes no {name}{ends if known else ''}",
            hint="specbench ls engines",
        )


def arguments_of(name: str, recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """The recipe's arguments that one engine takes, as names and values."""
    row = ENGINES[name]
    found = (argument.partition("=") for argument in recipe.measure.engine_args)
    return tuple((n, v) for n, _, v in found if row.any_options or n in row.options)


def by_engine(recipe: Recipe) -> dict[str, Recipe]:
    """The recipe for each of its engines alone."""
    return {name: _alone(recipe, name) for name in recipe.measure.engine}


def _alone(recipe: Recipe, name: str) -> Recipe:
    given = tuple(f"{n}={v}" for n, v in arguments_of(name, recipe))
    own = recipe.measure.model_copy(update={"engine": (name,), "engine_args": given})
    return recipe.model_copy(update={"measure": own})
