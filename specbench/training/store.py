"""Checkpoints: weights, optimizers, position and curve in one safetensors file.

A checkpoint is written beside the old one and then takes its place, so that whatever happens
meanwhile one of the two is whole. Draws depend on the seed and the step alone: the step is all that
there is to know of the random numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from specbench.errors import UsageError
from specbench.result_files import files
from specbench.training.plan import FORMAT, checkpoint_of

COLUMNS = (
    "step",
    "seconds",
    "tokens",
    "loss",
    "kl",
    "overlap",
    "alpha",
    "alpha_low",
    "alpha_high",
    "alpha_deep",
)
"""Of curve.csv. `loss`, `kl` and `overlap` are means over the training windows since the last row;
`alpha` is the mean of Σ min(p, q) on held-out texts at temperature 1, `alpha_deep` the same at the
last token of a head's chain."""

Row = dict[str, float | None]


@dataclass
class Position:
    """How far a training is."""

    step: int = 0
    seconds: float = 0.0
    """Spent on training, over all stretches."""
    curve: list[Row] = field(default_factory=list)


def about(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself; refused where it is damaged or of another version."""
    try:
        with safe_open(path, framework="pt") as found:
            told = found.metadata() or {}
        known = {key: json.loads(value) for key, value in told.items()}
    except (SafetensorError, ValueError, OSError) as err:
        raise UsageError(
            f"{path} cannot be read",
            where=str(err).partition("\n")[0],
            hint="another --output-dir: this training cannot be gone on with",
        ) from err
    if known.get("checkpoint") != FORMAT:
        raise UsageError(
            f"{path} is no checkpoint of this version",
            where=f"it says {known.get('checkpoint', 'nothing')}, this is {FORMAT}",
            hint="another --output-dir",
        )
    return known


def save(
    folder: Path,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    position: Position,
    told: dict[str, Any],
) -> None:
    """Write the checkpoint of a position, and its curve."""
    tensors: dict[str, Tensor] = {f"model/{name}": p for name, p in _trained(model)}
    for place, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{place}/{index}/{key}": v for key, v in state.items()}
    parts = {
        "checkpoint": FORMAT,
        "step": position.step,
        "seconds": position.seconds,
        "curve": position.curve,
        **told,
    }
    write_tensors(checkpoint_of(folder), tensors, {k: json.dumps(v) for k, v in parts.items()})
    write_curve(folder, position.curve)


def write_tensors(path: Path, tensors: dict[str, Tensor], told: dict[str, str]) -> None:
    """Put a file of tensors in the place of another; a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = files.temporary(path)
    own = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    save_file(own, fresh, metadata=told)
    with fresh.open("rb") as out:
        os.fsync(out.fileno())
    fresh.replace(path)


def write_curve(folder: Path, curve: Sequence[Row]) -> None:
    """The curve as a table."""
    rows = [[row.get(name) for name in COLUMNS] for row in curve]
    files.replace(folder / "curve.csv", "".join(map(files.csv_line, [COLUMNS, *rows])))


def load(folder: Path, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Position:
    """Put weights and optimizers back, and say where the training was."""
    path = checkpoint_of(folder)
    told = about(path)
    try:
        tensors = load_file(path)
        with torch.no_grad():
            for name, parameter in _trained(model):
                parameter.copy_(tensors[f"model/{name}"])
        for place, optimizer in enumerate(optimizers):
            state = _state_of(tensors, f"optimizer/{place}/")
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
    except (SafetensorError, KeyError, RuntimeError, ValueError) as err:
        raise UsageError(
            f"{path} does not hold the weights of this draft",
            where=str(err).partition("\n")[0],
            hint="another --output-dir",
        ) from err
    return Position(int(told["step"]), float(told["seconds"]), list(told["curve"]))


def _state_of(tensors: dict[str, Tensor], prefix: str) -> dict[int, dict[str, Tensor]]:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(prefix):
            index, _, key = name.removeprefix(prefix).partition("/")
            state.setdefault(int(index), {})[key] = value
    return state


def _trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]
