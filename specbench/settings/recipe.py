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
from specbench.settings.recipe_parts import MeasureConfig, Part, PromptsConfig, SamplingConfig
from specbench.settings.recipe_specs import DraftSpec, TargetSpec, distinct, repeated
from specbench.settings.recipe_values import Range, fault, items, unique


class Recipe(Part):
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
        out[key] = _given(value) if isinstance(value, Part) else value
    return out


def canonical(recipe: Recipe) -> dict[str, Any]:
    """The resolved recipe as JSON has it, itself a valid recipe; home folders as `~`."""
    data: dict[str, Any] = recipe.model_dump(mode="json")
    data["target"] = {"name": recipe.target.label, "ref": portable(recipe.target.ref)}
    data["drafts"] = [draft_mapping(draft) for draft in recipe.drafts]
    measure = data["measure"]
    if len(measure["engine"]) == 1:
        (measure["engine"],) = measure["engine"]
    for key in ("engine_args", "engine_python"):
        if not measure[key]:
            del measure[key]
    if "engine_python" in measure:
        measure["engine_python"] = portable(measure["engine_python"])
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
