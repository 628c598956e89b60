"""The recipe: what a run measures, as a typed model; how flags change it; what it expands to."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from specbench.errors import SpecbenchError, UsageError
from specbench.records import Cell, Sampling
from specbench.settings.gamma import LARGEST, parse_gamma
from specbench.settings.places import EMBEDDED, portable
from specbench.settings.recipe_check import CheckConfig
from specbench.settings.recipe_faults import FLAGS, described, flag_error
from specbench.settings.recipe_specs import (
    DraftSpec,
    TargetSpec,
    distinct,
    repeated,
)
from specbench.settings.recipe_values import (
    Range,
    choice,
    fault,
    items,
    number,
    numbers,
    unique,
    words,
)

COUNT = Range(1)
PROMPTS = Range(1, 1_000_000)
TOKENS = Range(1, 1_000_000)
BATCH = Range(1, 4096)
THREADS = Range(1, 4096)
REPEATS = Range(1, 1000)
WARMUP = Range(0, 100)
TOP_K = Range(0, 10_000_000)
DTYPES = ("float32", "float64", "bfloat16", "float16")

Words = Annotated[tuple[str, ...], BeforeValidator(words)]
Dtype = Annotated[str | None, BeforeValidator(choice(DTYPES))]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PromptsConfig(_Part):
    """Which prompts, and how they become tokens."""

    dataset: str = ""
    """A name or a file; empty in a recipe: `passages` for the embedded target, else `general`."""
    categories: Words = ()
    num: Annotated[int | None, number(PROMPTS)] = 20
    """None is all."""
    min_tokens: Annotated[int | None, number(COUNT)] = None
    max_tokens: Annotated[int | None, number(COUNT)] = None
    raw: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> PromptsConfig:
        if self.min_tokens and self.max_tokens and self.min_tokens > self.max_tokens:
            raise fault(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}")
        return self


class SamplingConfig(_Part):
    """The laws to decode under, and how far."""

    temperature: Annotated[tuple[float, ...], numbers(Range(0, whole=False))] = (0.0, 1.0)
    top_k: Annotated[tuple[int, ...], numbers(TOP_K)] = (0,)
    """0 is off."""
    top_p: Annotated[tuple[float, ...], numbers(Range(0, 1, whole=False, above=True))] = (1.0,)
    """1 is off."""
    seed: Annotated[int, number(Range(0, 2**63 - 1))] = 0
    max_new_tokens: Annotated[int, number(TOKENS)] = 128
    ignore_eos: bool = False


class MeasureConfig(_Part):
    """The shapes, the machine's settings, and how often."""

    batch_size: Annotated[tuple[int, ...], numbers(BATCH)] = (1,)
    context_length: Annotated[tuple[int, ...] | None, numbers(COUNT)] = None
    repeats: Annotated[int, number(REPEATS)] = 1
    warmup: Annotated[int, number(WARMUP)] = 1
    dtype: Dtype = None
    """None is the checkpoint's own; float32 on the CPU."""
    draft_dtype: Dtype = None
    device: str | None = None
    threads: Annotated[int | None, number(THREADS)] = None
    forward: str = "eager"
    engine: str = "torch"
    trust_remote_code: bool = False
    margin: Annotated[float, number(Range(0, 1, whole=False, below=True))] = 0.03
    """What counts as a difference, as a fraction."""
    baseline_generate: bool = False
    score: bool = True
    """Whether emitted texts are scored after a block, outside all timing."""


class Recipe(_Part):
    """One question, and all that is needed to measure its answer."""

    version: Literal[1] = 1
    name: str = "run"
    question: str = ""
    target: TargetSpec = TargetSpec.model_validate(EMBEDDED)
    drafts: Annotated[tuple[DraftSpec, ...], BeforeValidator(lambda value: _listed(value))] = ()
    gamma: Annotated[tuple[int, ...], BeforeValidator(lambda value: _gammas(value))] = tuple(
        range(1, 9)
    )
    prompts: PromptsConfig = PromptsConfig()
    sampling: SamplingConfig = SamplingConfig()
    measure: MeasureConfig = MeasureConfig()
    check: CheckConfig = CheckConfig()
    _repeated: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _complete(self) -> Recipe:
        prompts = self.prompts
        if not prompts.dataset:
            name = "passages" if self.target.ref == EMBEDDED else "general"
            # `model_fields_set` stays as it was, so that `merge_flags` can choose anew
            # when a flag brings another target.
            prompts = prompts.model_copy()
            prompts.__dict__["dataset"] = name
        if self.measure.context_length and (prompts.min_tokens or prompts.max_tokens):
            raise fault("context_length sets the prompts' length: no min_tokens, no max_tokens")
        drafts = distinct(self.drafts or self._own_drafts())
        self._repeated = repeated(self.drafts)
        self.__dict__.update(prompts=prompts, drafts=drafts)
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of how the recipe was read."""
        return tuple(
            f"the draft {label} is given more than once and measured once; "
            "with a name of its own (name=… in front) it is measured again"
            for label in self._repeated
        )

    def _own_drafts(self) -> tuple[DraftSpec, ...]:
        if self.target.ref == EMBEDDED:
            return (DraftSpec.model_validate(EMBEDDED),)
        if self.gamma == (0,):
            # Plain decoding alone needs no draft; `self` loads nothing more.
            return (DraftSpec.model_validate("self"),)
        raise fault(f"no draft is given for {self.target.label} (for example --draft self)")

    @property
    def gammas_with_baseline(self) -> tuple[int, ...]:
        """The γ to measure, 0 first."""
        return tuple(sorted({0, *self.gamma}))


def _listed(value: object) -> object:
    if value is None or value in ([], ()):
        raise fault("the list is empty; without the key, the embedded target takes its own draft")
    return value if isinstance(value, list | tuple) else [value]


def _gammas(value: object) -> tuple[int, ...]:
    try:
        found = [_gamma_item(item) for item in (value if isinstance(value, list) else [value])]
    except SpecbenchError as error:
        raise fault(error.what.removeprefix("--gamma ")) from error
    return unique(sorted(itertools.chain.from_iterable(found)))


def _gamma_item(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        return parse_gamma(value)
    return tuple(int(Range(0, LARGEST).number(item)) for item in items(value))


def default_recipe() -> Recipe:
    """The embedded pair with the defaults of the command line."""
    return Recipe()


def merge_flags(recipe: Recipe, flags: Mapping[str, object]) -> Recipe:
    """The recipe with flags over it; None and empty lists are flags that were not given."""
    data = _given(recipe)
    for flag, value in flags.items():
        if value is None or value in ([], ()):
            continue
        *section, key = FLAGS[flag]
        place = data.setdefault(section[0], {}) if section else data
        place[key] = value
    try:
        merged = Recipe.model_validate(data)
    except ValidationError as error:
        raise flag_error(error, flags) from error
    if not flags.get("draft"):
        merged._repeated = recipe._repeated
    return merged


def _given(part: BaseModel) -> dict[str, Any]:
    """What was set in a recipe, one level of sections deep, without the defaults."""
    out: dict[str, Any] = {}
    for key in part.model_fields_set:
        value = getattr(part, key)
        out[key] = _given(value) if isinstance(value, _Part) else value
    return out


def canonical(recipe: Recipe) -> dict[str, Any]:
    """The resolved recipe as JSON has it, itself a valid recipe; home folders as `~`."""
    data: dict[str, Any] = recipe.model_dump(mode="json")
    data["target"] = {"name": recipe.target.label, "ref": portable(recipe.target.ref)}
    data["drafts"] = [draft_mapping(draft) for draft in recipe.drafts]
    data["prompts"]["dataset"] = portable(recipe.prompts.dataset)
    return data


def draft_mapping(draft: DraftSpec) -> dict[str, Any]:
    """A draft as a recipe's YAML has it: name, kind, ref, and its options beside them."""
    ref = {"ref": portable(draft.ref)} if draft.ref else {}
    return {"name": draft.label, "kind": draft.kind} | ref | dict(sorted(draft.options.items()))


def recipe_from(data: object, *, name: str = "") -> Recipe:
    """A recipe from parsed data, such as the one in `run.json`; the first fault is raised."""
    named = {"name": name, **data} if name and isinstance(data, dict) else data
    try:
        return Recipe.model_validate(named)
    except ValidationError as error:
        raise UsageError(described(error.errors()[0]).text) from error


@dataclass(frozen=True, slots=True)
class Block:
    """Cells that are measured together, interleaved, with models loaded once."""

    draft: DraftSpec
    sampling: Sampling
    batch_size: int
    context_length: int | None
    gammas: tuple[int, ...]
    """With 0, the baseline of this block."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """One cell per γ, the baseline first."""
        return tuple(
            Cell(self.draft.label, gamma, self.sampling, self.batch_size, self.context_length)
            for gamma in self.gammas
        )

    @property
    def id(self) -> str:
        """12 hex digits over all keys but γ."""
        keys = self.cells[0].keys() | {"gamma": None, "draft": draft_mapping(self.draft)}
        text = json.dumps(keys, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def expand(recipe: Recipe) -> tuple[Block, ...]:
    """The blocks in the order they are run: draft × batch × context × sampling."""
    measure = recipe.measure
    return tuple(
        Block(draft, law, batch, context, recipe.gammas_with_baseline)
        for draft in recipe.drafts
        for batch in measure.batch_size
        for context in measure.context_length or (None,)
        for law in laws(recipe.sampling)
    )


def laws(config: SamplingConfig) -> tuple[Sampling, ...]:
    """Temperature × top-k × top-p; greedy once, since no filter changes it."""
    return unique(
        Sampling(temperature, *((config.top_k[0], config.top_p[0]) if temperature == 0 else law))
        for temperature in config.temperature
        for law in itertools.product(config.top_k, config.top_p)
    )
