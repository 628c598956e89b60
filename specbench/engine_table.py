"""The table of engines: a name, what it is in one line, what it can do, where its class lives.

Pure data, so that recipes can be checked and listed without loading any model library.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine as `ls engines` shows it, and what it is not asked for in vain."""

    name: str
    runs: str
    needs: str
    loads: str
    """`module:Class`, imported on use; made with `Settings`."""
    drafts: tuple[str, ...] | None = None
    """Draft kinds; None: all."""
    batches: bool = True
    """Whether it runs more than one prompt at a time."""
    sampled: bool = True
    """Whether it takes temperatures above 0."""
    filters: bool = True
    """Whether it takes top-k and top-p."""
    dtypes: tuple[str, ...] | None = None
    """Dtypes that can be asked for; None: all; empty: it has its own."""
    forwards: bool = False
    """Whether it takes forward modes other than eager."""
    random_weights: bool = False
    """Whether it can run a `config:` target."""
    in_process: bool = False
    """Whether its models are in this process."""
    cycles: bool = True
    """Whether it tells each cycle; else counts alone."""
    options: tuple[str, ...] = ()
    """Names that `--engine-arg NAME=VALUE` takes."""
    any_options: bool = False
    """Whether it passes every `--engine-arg` on as it is."""


ENGINES: dict[str, EngineRow] = {
    row.name: row
    for row in (
        EngineRow(
            "torch",
            "our own loop, in this process",
            "–",
            "specbench.engines.torch_engine:TorchEngine",
            forwards=True,
            random_weights=True,
            in_process=True,
        ),
    )
}
OWN = "torch"
"""Our own loop: what predicts, verifies and scores."""
