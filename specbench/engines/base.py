"""The protocol of an engine, and what every engine has to be told.

Two parts of a run ask for more than this protocol: `torch` alone has a self-test, forward modes and
the models that score texts (`TorchEngine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from specbench.records import Cell, Generation, Prompt


@dataclass(frozen=True, slots=True)
class Settings:
    """What does not change from cell to cell."""

    target: str
    """What a loader opens."""
    target_label: str
    dtype: str | None = None
    draft_dtype: str | None = None
    device: str | None = None
    threads: int | None = None
    forward: str = "eager"
    seed: int = 0
    max_new_tokens: int = 128
    ignore_eos: bool = False
    trust_remote_code: bool = False
    arguments: tuple[tuple[str, str], ...] = ()
    """`--engine-arg`: names and values, those of this engine."""
    python: str = ""
    """`--engine-python`: for an engine that has an environment of its own."""
    gammas: tuple[int, ...] = ()
    """Every γ that will be asked for, 0 included, for engines that prepare them ahead."""


@dataclass(frozen=True, slots=True)
class DraftRef:
    """A draft as an engine opens it."""

    label: str
    kind: str
    ref: str
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What the self-test of a pair found."""

    numeric_floor: float
    """Total variation at temperature 1 between one-token and block passes of the target."""
    worst: float
    """Largest logit difference between rollback and recomputation, over both models."""


class Engine(Protocol):
    """What every engine has. Models are loaded once per draft and freed after.

    Made with `Settings`; what it cannot do stands in its row of `engine_table` and is refused
    before it is made.
    """

    name: str
    settings: Settings
    tokenizer: Any
    """Of transformers, or one that encodes, decodes and renders chat templates like those."""

    @property
    def context(self) -> int:
        """Tokens of prompt and output together: the smaller limit of the pair."""

    def open_target(self) -> None:
        """Load the target and its tokenizer, or reach what serves it."""

    def open_draft(self, draft: DraftRef) -> None:
        """Load a draft in place of the last one; refuses what cannot be paired."""

    def examine(self, prompts: Sequence[Prompt], gamma: int) -> dict[str, object]:
        """Check the open draft as far as this engine can; what `run.json` says of it.

        `law` (`context`, `start`) and `own_length` where they are not those of the kind, `dtype`,
        `verify_rule` where it is not `exact`, `memory_mb`, `numeric_floor`,
        `rollback_difference`: what is not known is absent.
        """

    def prepare(self, cells: Sequence[Cell], prompts: Sequence[Prompt]) -> None:
        """Get ready for the cells of a block over these prompts; refuses what cannot be run."""

    def warm_up(self, cells: Sequence[Cell], prompts: Sequence[Prompt]) -> None:
        """Run every shape once, outside all counts."""

    def generate(self, cell: Cell, prompts: Sequence[Prompt], repeat: int) -> list[Generation]:
        """One batch: a generation per prompt, in order. A failure is a status, not an error.

        Engines that tell cycles fill `cycles`; others fill `counts` with what they know.
        """

    def text(self, ids: Sequence[int]) -> str:
        """Token ids as text, special tokens left out."""

    def describe(self) -> dict[str, str]:
        """`device`, `dtype`, `draft_dtype` and `threads`, empty where they are not known."""

    def facts(self) -> dict[str, object]:
        """What else `run.json` says of the engine: versions, addresses, arguments."""

    def close(self) -> None:
        """Free the models, or end what was started."""


def in_turn(engine: Engine) -> bool:
    """Whether one γ is measured to its end before the next, since a change of γ takes long."""
    return bool(getattr(engine, "in_turn", False))


def served_now(engine: Engine) -> int | None:
    """The γ that is measured first where a change takes long: the one that is there already."""
    found = getattr(engine, "serving", None)
    return found if isinstance(found, int) else None
