"""A result folder as reports see it: blocks of one draft in one setting, their rows by γ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar, cast

from specbench.errors import UsageError
from specbench.estimators.decompose import identity_gap
from specbench.estimators.intervals import Interval
from specbench.kinds import KINDS
from specbench.result_files.cells import ALL, Part, parts
from specbench.result_files.checked import HINT
from specbench.result_files.results import RunData
from specbench.result_files.summary import changed_files, summary_of
from specbench.settings.recipe import Recipe, recipe_from
from specbench.wording import plain_number

T = TypeVar("T")
MARGIN = 0.03
"""What counts as a difference, where the recipe does not say."""


@dataclass(frozen=True)
class Setting:
    """What holds for all drafts of one table."""

    temperature: float
    top_k: int
    top_p: float
    batch_size: int
    context_length: int | None

    def words(self) -> dict[str, str]:
        """Each part by name, as text; filters and contexts that are off are left out."""
        parts = {"temperature": f"temperature {plain_number(self.temperature)}"}
        if self.top_k:
            parts["top_k"] = f"top-k {self.top_k}"
        if self.top_p < 1:
            parts["top_p"] = f"top-p {plain_number(self.top_p)}"
        parts["batch_size"] = f"batch {self.batch_size}"
        if self.context_length is not None:
            parts["context_length"] = f"context {self.context_length}"
        return parts


@dataclass(frozen=True)
class Row:
    """One cell."""

    gamma: int
    status: str
    reason: str
    prompts: int
    alpha: Interval
    tau: Interval
    gap: Interval
    speedup: Interval
    latency: Interval
    numbers: Mapping[str, float | None]
    """Further columns of the summary."""
    part: Part
    kind: str = ""
    """Of α: `counts`, `positions` or `inverted`; empty where it has none."""

    @property
    def measured(self) -> bool:
        """Whether some generation of the cell is good."""
        return self.status in ("ok", "partial")

    def number(self, name: str) -> float | None:
        """A column of the summary; None where it is empty."""
        return self.numbers.get(name)


@dataclass(frozen=True)
class Block:
    """One draft in one setting."""

    draft: str
    kind: str
    setting: Setting
    baseline: Row | None
    rows: tuple[Row, ...]
    """γ ≥ 1, ascending."""

    @property
    def simulated(self) -> bool:
        """Whether the draft's times are no measured ones."""
        kind = KINDS.get(self.kind)
        return kind is not None and kind.simulated_time

    @property
    def measured(self) -> tuple[Row, ...]:
        """Rows of cells that have numbers."""
        return tuple(row for row in self.rows if row.measured)

    @property
    def timed(self) -> tuple[Row, ...]:
        """Rows with a measured speedup."""
        return tuple(row for row in self.measured if row.speedup.value is not None)

    @property
    def reason(self) -> str:
        """Why cells of the block failed, in the words of the first that did."""
        every = [self.baseline, *self.rows] if self.baseline else list(self.rows)
        return next((row.reason for row in every if row.reason), "")


@dataclass(frozen=True)
class View:
    """A run as reports see it."""

    run: RunData
    blocks: tuple[Block, ...]

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """In the order in which they were measured."""
        return tuple(dict.fromkeys(block.setting for block in self.blocks))

    @cached_property
    def drafts(self) -> tuple[str, ...]:
        """Labels in the order of the recipe, which gives each its colour."""
        named = dict.fromkeys(mapping(self.run.manifest, "drafts"))
        return tuple(named | dict.fromkeys(block.draft for block in self.blocks))

    @cached_property
    def changed(self) -> list[str]:
        """Files with numbers that are not as the run wrote them."""
        return changed_files(self.run)

    @cached_property
    def recipe(self) -> Recipe | None:
        """The recipe, where this version can read it."""
        try:
            return recipe_from(self.run.manifest.get("recipe"))
        except UsageError:
            return None

    @property
    def margin(self) -> float:
        """What counts as a difference."""
        return self.recipe.measure.margin if self.recipe else MARGIN

    @property
    def target(self) -> str:
        """The target's label."""
        return str(mapping(self.run.manifest, "settings").get("target") or "the target")

    def at(self, setting: Setting) -> tuple[Block, ...]:
        """The blocks of one setting."""
        return tuple(block for block in self.blocks if block.setting == setting)

    def alone(self, setting: Setting) -> RunData:
        """The run with the generations of one setting."""
        rows = self.run.generations
        context = rows["context_length"]
        same = (
            context.isna() if setting.context_length is None else context.eq(setting.context_length)
        )
        for name in ("temperature", "top_k", "top_p", "batch_size"):
            same &= rows[name].eq(getattr(setting, name))
        return replace(self.run, generations=rows[same])

    def only(self, setting: Setting) -> View:
        """The same of one setting alone."""
        return View(self.alone(setting), self.at(setting))

    def title(self, setting: Setting) -> str:
        """What tells this setting from the others of the run; empty if there is but one."""
        every = [one.words() for one in self.settings]
        own = setting.words()
        names = dict.fromkeys(name for words in every for name in words)
        varied = [n for n in names if len({words.get(n) for words in every}) > 1]
        return ", ".join(own.get(name, f"no {name.replace('_', '-')}") for name in varied)

    def places(self, settings: Iterable[Setting]) -> str:
        """Where something was seen, by what tells settings apart; empty if the run has but one."""
        titles = dict.fromkeys(title for one in settings if (title := self.title(one)))
        return f" at {'; '.join(titles)}" if titles else ""

    def most(
        self, found: Callable[[RunData], T | None], size: Callable[[T], float]
    ) -> tuple[T, str] | None:
        """What the run shows, in the setting where it is largest, named; then the others."""
        whole = found(self.run)
        each = {one: seen for one in self.settings if (seen := found(self.alone(one))) is not None}
        if whole is None or not each:
            return None if whole is None else (whole, "")
        worst = max(each, key=lambda one: size(each[one]))
        others = self.places(one for one in each if one != worst)
        return each[worst], self.places([worst]) + (f"; also{others}" if others else "")

    def per_cell(self, recipe: Recipe) -> int:
        """Generations of a cell that is whole."""
        said = real(mapping(self.run.manifest, "prompts").get("count")) or 0
        return max(len(self.run.prompts), int(said)) * recipe.measure.repeats

    def refused_drafts(self) -> set[str]:
        """Drafts that could not be paired with the target at all."""
        rows = self.run.generations
        off = (rows["group"] < 0) & (rows["status"] == "refused")
        none = off.groupby(rows["draft"]).all()
        return {*map(str, none.index[none]), *mapping(self.run.manifest, "refused")}

    def made(self) -> int:
        """Generations that are in the files."""
        return int((self.run.generations["group"] >= 0).sum())


def look(run: RunData) -> View:
    """Gather a run's cells into blocks."""
    found = {str(part.rows["cell"].iloc[0]): part for part in parts(run) if part.category == ALL}
    for cell, part in found.items():
        _check_identity(run, cell, part)
    blocks: dict[tuple[str, Setting], list[Row]] = {}
    kinds: dict[str, str] = {}
    for record in _records(run):
        cell, draft = str(record["cell"]), str(record["draft"])
        kinds[draft] = str(record.get("draft_kind") or "")
        blocks.setdefault((draft, _setting(record)), []).append(_row(record, found[cell]))
    order = list(dict.fromkeys([*mapping(run.manifest, "drafts"), *kinds]))
    made = [_block(draft, kinds[draft], setting, rows) for (draft, setting), rows in blocks.items()]
    return View(run, tuple(sorted(made, key=lambda block: order.index(block.draft))))


def _check_identity(run: RunData, cell: str, part: Part) -> None:
    """Refuse counts of one γ, none of them cut short, whose full accepts contradict their τ."""
    try:
        identity_gap(part.sums)
    except ValueError as fault:
        where = f"{run.folder}: {part.rows['draft'].iloc[0]}, γ {part.gamma}: {fault}"
        raise UsageError(
            f"the counts of cell {cell} contradict each other", where=where, hint=HINT
        ) from fault


def _records(run: RunData) -> Iterator[dict[str, object]]:
    """The summary's rows over all categories, from the file or made anew."""
    return (row for row in summary_of(run) if row["category"] == ALL)


def _block(draft: str, kind: str, setting: Setting, rows: list[Row]) -> Block:
    ordered = sorted(rows, key=lambda row: row.gamma)
    baseline = next((row for row in ordered if row.gamma == 0), None)
    return Block(draft, kind, setting, baseline, tuple(r for r in ordered if r.gamma))


def _setting(record: Mapping[str, object]) -> Setting:
    context = real(record.get("context_length"))
    return Setting(
        temperature=real(record["temperature"]) or 0.0,
        top_k=int(real(record["top_k"]) or 0),
        top_p=real(record["top_p"]) or 1.0,
        batch_size=int(real(record["batch_size"]) or 1),
        context_length=None if context is None else int(context),
    )


def _row(record: Mapping[str, object], part: Part) -> Row:
    numbers = {name: real(value) for name, value in record.items()}

    def found(name: str, unit: str = "") -> Interval:
        value, low, high = (numbers.get(f"{name}{end}{unit}") for end in ("", "_low", "_high"))
        return Interval(value, low, high)

    return Row(
        gamma=int(numbers["gamma"] or 0),
        status=str(record.get("status") or ""),
        reason=next((str(text) for text in part.rows["reason"] if text), ""),
        prompts=int(numbers.get("num_prompts") or 0),
        alpha=found("alpha"),
        tau=found("tau"),
        gap=found("tau_gap"),
        speedup=found("speedup"),
        latency=found("latency", "_ms"),
        numbers=numbers,
        part=part,
        kind=str(record.get("alpha_kind") or ""),
    )


def real(value: object) -> float | None:
    """A number of the files; None where it is empty or no number."""
    if isinstance(value, bool | str) or value is None:
        return None
    number = float(cast("float", value))
    return number if abs(number) < float("inf") else None


def mapping(manifest: Mapping[str, object], key: str) -> Mapping[str, object]:
    """A part of `run.json`, empty where it is absent or of another form."""
    found = manifest.get(key)
    return found if isinstance(found, dict) else {}
