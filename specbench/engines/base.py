"""The protocol of an engine, and what every engine has to be told."""

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
    """Generates for cells. Models are loaded once per draft and freed after."""

    name: str

    def open_target(self) -> None:
        """Load the target and its tokenizer."""

    def open_draft(self, draft: DraftRef) -> None:
        """Load a draft in place of the last one; refuses what cannot be paired."""

    def self_test(self, prompts: Sequence[Prompt], batch_size: int, gamma: int) -> SelfTest:
        """Compare rollback with recomputation on these models, at this batch size."""

    def warm_up(self, cells: Sequence[Cell], prompts: Sequence[Prompt]) -> None:
        """Run every shape once, outside all counts."""

    def generate(self, cell: Cell, prompts: Sequence[Prompt], repeat: int) -> list[Generation]:
        """One batch: a generation per prompt, in order."""

    def close(self) -> None:
        """Free the models."""
