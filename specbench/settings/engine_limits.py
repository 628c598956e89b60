"""What a recipe asks of an engine that cannot do it: refused before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specbench.engine_table import ENGINES, OWN, EngineRow
from specbench.errors import UsageError
from specbench.settings.recipe import Recipe
from specbench.settings.recipe_specs import DraftSpec
from specbench.settings.recipe_values import CONFIG, did_you_mean

Refusal = tuple[str, str]
"""What cannot be done, and what to try."""


def refuse_unable(recipe: Recipe, *, drafts: bool = True) -> None:
    """Refuse what one of the recipe's engines cannot run, and arguments that it does not take.

    Without `drafts` they are left to `refuse_draft`, one by one.
    """
    for name in recipe.measure.engine:
        row = ENGINES[name]
        for what, hint in (*_weights(row, recipe), *_laws(row, recipe), *_machine(row, recipe)):
            raise UsageError(f"--engine {name}: {what}", where=f"{name}: {row.runs}", hint=hint)
        for spec in recipe.drafts if drafts else ():
            refuse_draft(name, spec, recipe.gamma)
    _refuse_arguments(recipe)
    if recipe.measure.engine_python and not any(
        ENGINES[name].own_python for name in recipe.measure.engine
    ):
        asked = ", ".join(recipe.measure.engine)
        names = ", ".join(name for name, row in ENGINES.items() if row.own_python)
        raise UsageError(
            f"--engine-python: {asked} runs in no environment of its own",
            hint=f"for --engine {names}",
        )


def refuse_draft(engine: str, spec: DraftSpec, gammas: Sequence[int]) -> None:
    """Refuse a draft of a kind that an engine lacks."""
    row = ENGINES[engine]
    # At γ = 0 alone nothing is drafted, and `self` stands for no draft.
    if row.drafts is not None and spec.kind not in row.drafts and any(gammas):
        raise UsageError(
            f"--engine {engine}: no draft of kind {spec.kind} ({spec.label})",
            where=f"{engine}: {row.runs}",
            hint=f"leave {spec.label} out, one of {', '.join(row.drafts)}, or --engine {OWN}",
        )


def refuse_other(recipe: Recipe, what: str) -> None:
    """Refuse every engine but our own, for what is done in our own loop alone."""
    for name in recipe.measure.engine:
        if name != OWN:
            raise UsageError(
                f"--engine {name}: {what} in our own loop alone",
                hint=f"--engine {OWN}, or specbench run --engine {name}",
            )


def _weights(row: EngineRow, recipe: Recipe) -> Iterator[Refusal]:
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
    """An argument has to be one that an engine of the recipe takes; `ENGINE.NAME` is for one."""
    rows = [ENGINES[name] for name in recipe.measure.engine]
    known = {option for row in rows for option in row.options}
    for argument in recipe.measure.engine_args:
        name = argument.partition("=")[0]
        if any(_own_name(row, rows, name) for row in rows):
            continue
        ends = did_you_mean(name, known, otherwise=f" (they take {', '.join(sorted(known))})")
        names = ", ".join(row.name for row in rows)
        raise UsageError(
            f"--engine-arg {argument}: {names} takes no {name}{ends if known else ''}",
            hint="specbench ls engines",
        )


def _own_name(row: EngineRow, rows: Sequence[EngineRow], name: str) -> str:
    """What an argument is called at one of several engines; empty where it is not for it.

    Without the name of an engine before it, an argument that an engine lists is for those that
    list it, and any other for all that pass arguments on.
    """
    engine, dot, rest = name.partition(".")
    if dot and engine in ENGINES:
        return rest if engine == row.name and (row.any_options or rest in row.options) else ""
    if name in row.options:
        return name
    listed = any(name in other.options for other in rows)
    return name if row.any_options and not listed else ""


def arguments_of(name: str, recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """The recipe's arguments that one engine takes, as names and values."""
    rows = [ENGINES[one] for one in recipe.measure.engine]
    found = (argument.partition("=") for argument in recipe.measure.engine_args)
    own = ((_own_name(ENGINES[name], rows, n), v) for n, _, v in found)
    return tuple((n, v) for n, v in own if n)


def by_engine(recipe: Recipe) -> dict[str, Recipe]:
    """The recipe for each of its engines alone."""
    return {name: _alone(recipe, name) for name in recipe.measure.engine}


def _alone(recipe: Recipe, name: str) -> Recipe:
    given = tuple(f"{n}={v}" for n, v in arguments_of(name, recipe))
    python = recipe.measure.engine_python if ENGINES[name].own_python else None
    own = recipe.measure.model_copy(
        update={"engine": (name,), "engine_args": given, "engine_python": python}
    )
    return recipe.model_copy(update={"measure": own})
