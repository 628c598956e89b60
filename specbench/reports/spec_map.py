"""A map by data sheet: speedup over batch and context of shapes that nothing here has run."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from specbench.closed_form import theory
from specbench.errors import UsageError
from specbench.latency.device_spec import (
    SPEC_NAMES,
    DeviceSpec,
    Reads,
    SpecModel,
    shape_of_config,
)
from specbench.latency.roofline import Shape
from specbench.latency.speed_map import (
    Crossing,
    Surface,
    constant,
    crossing,
    crossing_at_large,
    surface,
)
from specbench.reports.map_report import crossing_words, drawn_between, speed_table
from specbench.reports.markdown_text import drawn, escaped
from specbench.reports.tables import Line, Table
from specbench.reports.terminal import apart, console_for, laid, show, wrapped
from specbench.result_files import files
from specbench.settings.model_refs import config_file
from specbench.settings.recipe import Recipe
from specbench.settings.recipe_specs import DraftSpec
from specbench.settings.recipe_values import CONFIG, DECIMAL
from specbench.signs import Signs
from specbench.wording import one_line

RATES = (1e9, 1e21)
"""Bytes or FLOP per second of a device; below, they were given in GB/s or TFLOP/s."""
LIMITS = {"mbu": (0.0, 1.0), "mfu": (0.0, 1.0), "devices": (1.0, 1e6), "pass_s": (0.0, 1e3)}
EXAMPLE = "--device-spec bandwidth=3.35e12,flops=989e12,devices=8"
CONTEXTS = (1024, 4096, 16384, 65536)
"""Where neither flags nor a recipe say otherwise."""
COLUMNS: Final = (
    "draft",
    "batch_size",
    "context_length",
    "gamma",
    "t_target_ms",
    "t_draft_ms",
    "t_verify_ms",
    "tau",
    "speedup",
    "best",
)


@dataclass(frozen=True)
class SpecDraft:
    """One draft's map."""

    draft: str
    model: SpecModel
    alpha: float
    surface: Surface
    crossings: tuple[Crossing, ...]
    at_large: Crossing

    def rows(self) -> Iterator[tuple[object, ...]]:
        """The rows of the answer as a table of numbers."""
        seen = self.surface
        for i, batch in enumerate(map(float, seen.batches)):
            for j, context in enumerate(map(float, seen.contexts)):
                step = self.model.verify(batch, context, 0)
                for k, gamma in enumerate(seen.gammas):
                    yield (
                        self.draft,
                        int(batch),
                        int(context),
                        gamma,
                        1000 * step,
                        1000 * self.model.drafting(batch, context, gamma),
                        1000 * self.model.verify(batch, context, gamma),
                        theory.tau(self.alpha, gamma),
                        float(seen.speedup[i, j, k]),
                        str(gamma == int(seen.best_gamma[i, j])).lower(),
                    )

    @property
    def table(self) -> Table:
        """Best speedup and its γ, a row per batch, a column per context."""
        return speed_table(self.surface, {})

    @property
    def sentence(self) -> str:
        """Where drafting pays."""
        where = "; ".join(map(crossing_words, self.crossings))
        end = self.at_large
        far = end.kind if end.context is None else f"{end.kind} context {end.context:.0f}"
        return (
            f"{drawn_between(self.surface)} drafting with {one_line(self.draft)} at "
            f"α {self.alpha:g} would pay: {where}; "
            f"as batch grows without end: {far}."
        )


def parse_spec(text: str) -> DeviceSpec:
    """A data sheet from `name=number,…`.

    Errors
    ------
        `UsageError` with what is allowed.
    """
    given: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in SPEC_NAMES or not equals or name in given:
            what = "given twice" if name in given else f"not one of {', '.join(SPEC_NAMES)}"
            raise UsageError(f"--device-spec {part.strip()}: {what}", hint=EXAMPLE)
        given[name] = _number(name, value)
    missing = [name for name in ("bandwidth", "flops") if name not in given]
    if missing:
        what = f"{' and '.join(missing)} missing"
        raise UsageError(
            f"--device-spec {text}: {what}", where="bytes and FLOP per second", hint=EXAMPLE
        )
    return DeviceSpec(**given)


def _number(name: str, text: str) -> float:
    """A plain decimal number that such a value can be."""
    low, high = LIMITS.get(name, RATES)
    value = float(text) if DECIMAL.fullmatch(text) else math.nan
    share, whole = name in ("mbu", "mfu"), name == "devices"
    if low <= value <= high and not (share and not value) and not (whole and value % 1):
        return value
    kind = "a whole number" if whole else "a number"
    span = f"above 0 and up to {high:g}" if share else f"from {low:g} to {high:g}"
    raise UsageError(
        f"--device-spec {name}={text}: not {kind} {span}",
        where="" if name in LIMITS else "bytes and FLOP per second, not GB/s or TFLOP/s",
        hint=EXAMPLE,
    )


def spec_map(recipe: Recipe, device: DeviceSpec, alpha: float | None) -> list[SpecDraft]:
    """The map of each draft of a recipe whose target is a `config:`.

    Errors
    ------
        `UsageError` for a target without a shape, and for a draft whose steps no shape tells.
    """
    if not recipe.target.location.startswith(CONFIG):
        raise UsageError(
            f"--device-spec needs the target's shape: {recipe.target.ref} is a model",
            hint="-t config:FILE, a model's config.json",
        )
    each = 4 if recipe.measure.dtype == "float32" else 2
    target = _shape(recipe.target.location, "--target", each)
    return [_draft(spec, target, each, recipe, device, alpha) for spec in recipe.drafts]


def _shape(ref: str, flag: str, each: int) -> Shape:
    path = config_file(ref, flag)
    try:
        config: Any = json.loads(path.read_text(encoding="utf-8"))
        if config.get("quantization_config"):
            raise ValueError("weights of a quantization_config have other bytes than --dtype says")
        return shape_of_config(config.get("text_config", config), each)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as err:
        why = f"no {err}" if isinstance(err, KeyError) else str(err)
        raise UsageError(
            f"no shape can be read from {path}",
            where=f"{flag}: {one_line(why)}",
            hint="the config.json of a dense decoder such as Llama or Qwen",
        ) from err


def _draft(
    spec: DraftSpec,
    target: Shape,
    each: int,
    recipe: Recipe,
    device: DeviceSpec,
    alpha: float | None,
) -> SpecDraft:
    own = spec.options.get("alpha") if spec.kind == "synthetic" else None
    kept = alpha if alpha is not None else own
    if not isinstance(kept, int | float):
        raise UsageError(
            f"{spec.label}: nothing is run, so its α has to be given", hint="--alpha 0.85"
        )
    model = SpecModel(target, *_reads(spec, target, each), device)
    gammas = [gamma for gamma in recipe.gamma if gamma]
    if not gammas:
        raise UsageError("--gamma 0: there is no γ to map", hint="--gamma 1-8")
    taus = constant({gamma: theory.tau(float(kept), gamma) for gamma in gammas})
    batches = sorted(set(recipe.measure.batch_size))
    contexts = sorted(set(recipe.measure.context_length or CONTEXTS))
    ends = contexts[0], contexts[-1]
    return SpecDraft(
        spec.label,
        model,
        float(kept),
        surface(model, taus, batches, contexts),
        tuple(crossing(model, taus, batch, *ends) for batch in batches),
        crossing_at_large(model, taus),
    )


def _reads(spec: DraftSpec, target: Shape, each: int) -> tuple[Shape, Reads]:
    """What one draft step reads: a shape, and how much of the text."""
    options = spec.options
    if spec.kind == "self":
        return target, Reads()
    if spec.kind == "sparsekv":
        budget = options.get("budget", 256)
        if isinstance(budget, bool) or not isinstance(budget, int | float) or budget <= 0:
            raise UsageError(
                f"--draft {spec.label}: budget must be a count, or a share below 1",
                where=f"given: {budget}",
                hint="--draft sparsekv:budget=512",
            )
        return target, Reads(float(budget))
    if spec.kind == "synthetic" and "shape" in options:
        return _shape(str(options["shape"]), "--draft", each), Reads()
    raise UsageError(
        f"--draft {spec.label}: no shape tells the steps of a draft of kind {spec.kind}",
        hint="--draft sparsekv:budget=512, self, or synthetic:alpha=0.8,shape=FILE",
    )


LEGEND = "best speedup and its γ over batch and context S, by data sheet: nothing was measured"


def spec_text(drafts: Sequence[SpecDraft], output: str) -> str:
    """All rows as CSV, JSON or Markdown."""
    if output == "md":
        parts = ["### specbench: map, predicted by data sheet", f"{LEGEND[0].upper()}{LEGEND[1:]}."]
        for one in drafts:
            parts += [f"**{escaped(one.draft)}.** {escaped(one.sentence)}", drawn(one.table)]
        return "\n\n".join(parts) + "\n"
    rows = [row for one in drafts for row in one.rows()]
    if output == "csv":
        return files.csv_line(COLUMNS) + "".join(map(files.csv_line, rows))
    named = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    return json.dumps(named, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def show_spec(
    drafts: Sequence[SpecDraft], target: str, *, quiet: bool = False, no_color: bool = False
) -> None:
    """Print a table per draft and where it pays."""
    console, signs = console_for(sys.stdout, no_color=no_color), Signs(sys.stdout)
    sections: list[list[Line]] = []
    for one in drafts:
        said = [[(part, "")] for part in wrapped(signs(one.sentence), console.width)]
        if not quiet:
            head: Line = [(signs(f"{one_line(one.draft)} for {one_line(target)}"), "bold")]
            table = laid(one.table, console.width, signs)
            sections.append([head, [(signs(LEGEND), "dim")], *table])
        sections.append(said)
    show(apart(sections), console)
