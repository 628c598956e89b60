"""Tables of what there is: drafts, data sets, recipes, engines, forwards; and what a file holds."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from specbench.engine_table import ENGINES, EngineRow
from specbench.errors import UsageError
from specbench.kinds import KINDS, Kind
from specbench.prompt_sets.prompts import (
    DATASETS,
    RawPrompt,
    categories_of,
    load_prompts,
    select,
)
from specbench.settings.forward_modes import MODES
from specbench.settings.recipe import Recipe, expand
from specbench.settings.recipe_load import SUFFIXES, get_recipe, load_recipe, shipped_recipes
from specbench.settings.recipe_values import did_you_mean
from specbench.signs import Signs
from specbench.wording import count

ENGINE_EXAMPLE = "specbench run --engine torch"
FORWARD_EXAMPLE = "specbench run --forward packed"
NARROWEST = 20
"""The last column, the only one that is cut or wrapped, keeps this many characters."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A table and the lines below it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    footer: tuple[tuple[str, str], ...] = ()


def listing(what: str, name: str = "") -> Listing:
    """The table of one kind of thing, or all about one of them."""
    if what not in TABLES:
        ends = did_you_mean(what, TABLES, otherwise=f" (there are {', '.join(TABLES)})")
        raise UsageError(f'specbench ls "{what}": not a list{ends}', hint="specbench ls drafts")
    whole = TABLES[what]()
    return _about(what, name, whole) if name else whole


def _about(what: str, name: str, whole: Listing) -> Listing:
    if what == "drafts" and name in KINDS:
        return _kind(KINDS[name])
    if what == "engines" and name in ENGINES:
        return _engine(ENGINES[name])
    if what == "recipes" and name in shipped_recipes():
        text = shipped_recipes()[name].read_text(encoding="utf-8")
        return Listing((name,), tuple((line,) for line in text.splitlines()))
    rows = tuple(row for row in whole.rows if row[0] == name)
    if not rows:
        ends = did_you_mean(name, (row[0] for row in whole.rows))
        raise UsageError(f'no "{name}" among the {what}{ends}', hint=f"specbench ls {what}")
    return Listing(whole.columns, rows)


def _drafts() -> Listing:
    rows = tuple((k.name, k.drafts_with, k.needs, k.sure_of_q) for k in KINDS.values())
    footer = (
        ("example", "specbench run -t embedded -d embedded -d synthetic:alpha=0.8"),
        ("more", "specbench ls drafts synthetic"),
    )
    return Listing(("kind", "drafts with", "needs", "sure of q"), rows, footer)


def _kind(kind: Kind) -> Listing:
    form = kind.name + (":ref" if kind.takes_ref else "")
    options = ",".join(f"{option}=…" for option in kind.options)
    if kind.any_options:
        options = "key=value…"
    if options:
        form += f"{',' if kind.takes_ref else ':'}{options}"
    law = {
        "context": "the text so far",
        "start": "the text, and where the cycle began",
        None: "as the class says",
    }
    rows = (
        ("drafts with", kind.drafts_with),
        ("written", f"[label=]{form}"),
        ("options", "any" if kind.any_options else ", ".join(kind.options) or "none"),
        ("needs", kind.needs),
        ("costs", kind.costs),
        ("sure of q", kind.sure_of_q),
        ("q depends on", law[kind.law]),
        ("proposes", "γ tokens, or fewer" if kind.own_length else "γ tokens"),
        ("times", "simulated, in columns of their own" if kind.simulated_time else "measured"),
    )
    return Listing((kind.name, ""), rows)


def _datasets() -> Listing:
    rows = tuple(
        (name, str(len(prompts)), about, ", ".join(categories_of(prompts)))
        for name, about in DATASETS.items()
        for prompts in [load_prompts(name)]
    )
    footer = (
        ("files", "a path that ends in .jsonl, .json, .csv, .parquet or .txt"),
        ("hub", "hf:owner/name:split:column"),
        ("example", "specbench run --dataset general --category chat,code"),
    )
    return Listing(("name", "prompts", "meant for", "categories"), rows, footer)


def _recipes() -> Listing:
    rows = tuple((name, load_recipe(path).question) for name, path in shipped_recipes().items())
    footer = (
        ("example", "specbench run quickstart"),
        ("more", "specbench ls recipes quickstart > mine.yaml"),
    )
    return Listing(("recipe", "answers"), rows, footer)


def _engines() -> Listing:
    rows = tuple((e.name, e.runs, e.needs, _drafts_of(e)) for e in ENGINES.values())
    footer = (("example", ENGINE_EXAMPLE), ("more", "specbench ls engines torch"))
    return Listing(("engine", "runs", "needs", "drafts"), rows, footer)


def _drafts_of(engine: EngineRow) -> str:
    return "all" if engine.drafts is None else ", ".join(engine.drafts)


def _laws_of(engine: EngineRow) -> str:
    if not engine.sampled:
        return "greedy alone"
    return "temperature, top-k, top-p" if engine.filters else "temperature"


def _engine(engine: EngineRow) -> Listing:
    options = "any, passed on" if engine.any_options else ", ".join(engine.options) or "none"
    dtypes = "all" if engine.dtypes is None else ", ".join(engine.dtypes) or "its own"
    rows = (
        ("runs", engine.runs),
        ("needs", engine.needs),
        ("drafts", _drafts_of(engine)),
        ("batches", "yes" if engine.batches else "one prompt at a time"),
        ("sampling", _laws_of(engine)),
        ("dtypes", dtypes),
        ("forwards", "all" if engine.forwards else "its own"),
        ("tells", "every cycle" if engine.cycles else "counts"),
        ("--engine-arg", options),
    )
    return Listing((engine.name, ""), rows)


def _forwards() -> Listing:
    rows = tuple((mode.name, mode.needs, mode.what) for mode in MODES.values())
    return Listing(("forward", "needs", "carries out"), rows, (("example", FORWARD_EXAMPLE),))


TABLES: dict[str, Callable[[], Listing]] = {
    "drafts": _drafts,
    "datasets": _datasets,
    "recipes": _recipes,
    "engines": _engines,
    "forwards": _forwards,
}


def show(what: str, name: str = "") -> None:
    """Print a listing to stdout."""
    sign = Signs(sys.stdout)
    for line in lines(listing(what, name), shutil.get_terminal_size().columns):
        print(sign(line))


def lines(found: Listing, width: int) -> list[str]:
    """A listing as text: a header and one rule; a recipe stays the file that it is.

    All about one thing is told to the end, over several lines; a table's last column is cut.
    """
    if len(found.columns) == 1:
        return [line for (line,) in found.rows]
    sizes = [max(map(len, column)) for column in zip(found.columns, *found.rows, strict=True)]
    sizes[-1] = min(sizes[-1], max(width - sum(sizes[:-1]) - 2 * len(sizes[:-1]), NARROWEST))
    rows = found.rows if found.columns[-1] else _wrapped(found.rows, sizes[-1])
    header, *body = (_line(row, sizes) for row in (found.columns, *rows))
    rule = "─" * (sum(sizes) + 2 * (len(sizes) - 1))
    footer = [f"{label:<8} {text}" for label, text in found.footer]
    return [header, rule, *body, *([""] if footer else []), *footer]


def _wrapped(rows: Sequence[tuple[str, ...]], width: int) -> Iterator[tuple[str, ...]]:
    """Rows of two columns, the second on as many lines as it takes."""
    for name, text in rows:
        first, *others = wrap(text, width, break_on_hyphens=False) or [""]
        yield name, first
        yield from (("", line) for line in others)


def _line(row: Sequence[str], sizes: Sequence[int]) -> str:
    cells = [cell.ljust(size) for cell, size in zip(row, sizes, strict=True)]
    if len(row[-1]) > sizes[-1]:
        cells[-1] = row[-1][: sizes[-1] - 1] + "…"
    return "  ".join(cells).rstrip()


def validated(name: str) -> str:
    """One line on what a recipe or a file of prompts holds; a fault is raised."""
    path = Path(name)
    if path.suffix in SUFFIXES or (name in shipped_recipes() and not path.is_file()):
        return f"ok  {name}: {_recipe_holds(get_recipe(name))}"
    return f"ok  {name}: {_prompts_hold(load_prompts(name))}"


def _recipe_holds(recipe: Recipe) -> str:
    blocks = expand(recipe)
    cells = sum(len(block.cells) for block in blocks)
    drafts = ", ".join(draft.label for draft in recipe.drafts)
    size = f"{count(len(blocks), 'block')}, {count(cells, 'cell')}"
    return f"{recipe.target.label} with {drafts}; {size}; {_chosen(recipe)}"


def _chosen(recipe: Recipe) -> str:
    config = recipe.prompts
    if config.dataset.startswith("hf:"):
        return f"prompts of {config.dataset}, not fetched"
    if lengths := recipe.measure.context_length:
        documents, _ = select(load_prompts(config.dataset), config.categories)
        tokens = ", ".join(map(str, lengths))
        return f"prompts of {tokens} tokens from {count(len(documents), 'document')}"
    prompts, note = select(load_prompts(config.dataset), config.categories, config.num)
    return f"{count(len(prompts), 'prompt')} of {config.dataset}{f' ({note})' if note else ''}"


def _prompts_hold(prompts: Sequence[RawPrompt]) -> str:
    turns = sum(prompt.num_turns for prompt in prompts)
    held = count(len(prompts), "prompt")
    if turns > len(prompts):
        held += f", {turns} turns"
    counts = _counts(prompts)
    return f"{held}; {counts}" if counts else held


def _counts(prompts: Sequence[RawPrompt]) -> str:
    return ", ".join(f"{name} {n}" for name, n in categories_of(prompts).items() if name)
