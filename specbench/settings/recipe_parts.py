"""The sections of a recipe: which prompts, which laws, which shapes, machine and engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from specbench.engine_table import ENGINES, OWN
from specbench.settings.recipe_values import (
    Range,
    assignments,
    choice,
    choices,
    fault,
    number,
    numbers,
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


class Part(BaseModel):
    """A section; a key that it does not know is a fault."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PromptsConfig(Part):
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


class SamplingConfig(Part):
    """The laws to decode under, and how far."""

    temperature: Annotated[tuple[float, ...], numbers(Range(0, whole=False))] = (0.0, 1.0)
    top_k: Annotated[tuple[int, ...], numbers(TOP_K)] = (0,)
    """0 is off."""
    top_p: Annotated[tuple[float, ...], numbers(Range(0, 1, whole=False, above=True))] = (1.0,)
    """1 is off."""
    seed: Annotated[int, number(Range(0, 2**63 - 1))] = 0
    max_new_tokens: Annotated[int, number(TOKENS)] = 128
    ignore_eos: bool = False


class MeasureConfig(Part):
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
    engine: Annotated[tuple[str, ...], choices(ENGINES)] = (OWN,)
    engine_args: Annotated[tuple[str, ...], BeforeValidator(assignments)] = ()
    engine_python: str | None = None
    """The Python of an engine that has an environment of its own."""
    trust_remote_code: bool = False
    margin: Annotated[float, number(Range(0, 1, whole=False, below=True))] = 0.03
    """What counts as a difference, as a fraction."""
    score: bool = True
    """Whether emitted texts are scored after a block, outside all timing."""

    @model_validator(mode="before")
    @classmethod
    def _as_now(cls, data: object) -> object:
        """Recipes of stored results may have a key that nothing ever read."""
        if not isinstance(data, Mapping) or "baseline_generate" not in data:
            return data
        if data["baseline_generate"] is not False:
            raise fault("baseline_generate is no key: engine torch,transformers measures both")
        return {key: value for key, value in data.items() if key != "baseline_generate"}
