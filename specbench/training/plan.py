"""What a draft is made from, and how: all that its weights depend on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench.errors import UsageError
from specbench.wording import count

FORMAT = 1
"""Of the plan, the checkpoint and the curve."""
FOLDER = "training"
FILE = "checkpoint.safetensors"


def checkpoint_of(folder: Path) -> Path:
    """Where a draft's checkpoint lies."""
    return folder / FOLDER / FILE


FRESH_RATE, TAUGHT_RATE = 3e-3, 3e-4
"""Of fresh weights, and of layers that the target had already learnt."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to make a draft. A resume has to follow the same."""

    target: str = "embedded"
    kind: str = "hf"
    """`hf`: a model of its own; `eagle`: a head on the target's hidden states."""
    text: str = "samples"
    """`samples`: the target's own, behind the prompts; `given`: the texts of the data set."""
    dataset: str = ""
    category: tuple[str, ...] = ()
    num_prompts: int = 0
    """0 is all."""
    raw_prompt: bool = False
    layers: int = 1
    width: int = 0
    """Of a model of its own; 0 is the target's."""
    from_layers: str = ""
    """The target's layers that it starts from, such as `0-3+29`."""
    draft_vocab: int = 0
    """Ids that a head can draft; 0 is all."""
    unroll: int = 3
    """Tokens of a chain that a head learns to draft one behind the other."""
    steps: int = 1000
    batch_size: int = 8
    window: int = 128
    rate: float = FRESH_RATE
    warmup: int = 30
    tv: float = 0.85
    """Weight of total variation from half way on; the rest is KL."""
    optimizer: str = ""
    every: int = 50
    """Steps between checkpoints, each with a held-out α."""
    held_out: int = 8
    """Prompts of which nothing is learnt."""
    sample_tokens: int = 128
    sample_batch: int = 32
    seed: int = 0
    dtype: str = ""
    """The target's while it teaches; empty is that of its checkpoint, float32 on the CPU."""

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**dataclasses.asdict(self), "category": list(self.category)}


def made(given: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> Plan:
    """The plan from flags (None: not given), which a stored one fills up and may not contradict."""
    fields = [field.name for field in dataclasses.fields(Plan)]
    flags = {name: given[name] for name in fields if given.get(name) not in (None, [])}
    if "category" in flags:
        flags["category"] = tuple(flags["category"])
    if stored is None:
        taught = {"rate": TAUGHT_RATE} if flags.get("from_layers") else {}
        return _checked(Plan(**{**taught, **flags}))
    known = {name: stored[name] for name in fields if name in stored}
    known["category"] = tuple(known.get("category", ()))
    before = Plan(**known)
    for name, value in flags.items():
        old = getattr(before, name)
        if value != old:
            flag = "--" + name.replace("_", "-")
            raise UsageError(
                f"{flag} {_shown(value)}: what is to be resumed has {_shown(old)}",
                hint=f"leave {flag} out, or another --output-dir",
            )
    return before


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value) or "none"


def _checked(plan: Plan) -> Plan:
    """Refuse flags that do not go together, and numbers that are none."""
    for name in ("rate", "tv"):
        if not math.isfinite(getattr(plan, name)):
            raise UsageError(f"--{name} {getattr(plan, name)}: not a number", hint=f"--{name} 0.01")
    own = plan.kind == "hf"
    if plan.from_layers and (plan.width or plan.layers != 1):
        raise UsageError(
            "--from-layers takes the target's layers, and their width",
            hint="leave --layers and --width out",
        )
    if not own and (plan.from_layers or plan.width or plan.layers != 1):
        raise UsageError(
            "an EAGLE head has one layer of the target's width",
            hint="leave --layers, --width and --from-layers out",
        )
    if own and plan.draft_vocab:
        raise UsageError(
            "--draft-vocab is for an EAGLE head: a model has the target's vocabulary",
            hint="--kind eagle",
        )
    if plan.unroll > plan.window:
        raise UsageError(
            f"--unroll {plan.unroll}: a window has {count(plan.window, 'token')}",
            hint="a larger --window",
        )
    return plan
