"""Put a loaded model into a forward mode, and prove on that very model that its law stayed.

The proof compares logits before and after: each pass of every width against the same pass of the
model as it was loaded. What one-token and block passes differ by anyway is the yardstick in half
precision, where no two kernels agree to 1e-3.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.errors import PairRefused, UsageError
from specbench.models.lm import CausalLM
from specbench.models.packed import Known, pack
from specbench.models.products import ROWS, Choice
from specbench.models.sampling import total_variation
from specbench.models.static import Compiled, CudaGraphs, Eager, Pool, Runner

PAST = 24
"""Tokens before the passes that are compared."""
TV_LIMIT = 1e-3
"""Total variation at temperature 1 that a mode may cost."""
FLOORS = 3.0
"""Or so many times what one-token and block passes of the model as loaded differ by."""
TOP_SLACK = 1e-5
"""A top token may lie below eager's by this share of the largest logit: a tie in float32."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What a forward mode came to on one model."""

    mode: str
    choices: tuple[Choice, ...] = ()
    variation: float = 0.0
    """Largest total variation at temperature 1 against `eager`."""
    pool: Pool | None = None
    """The sessions of fixed shapes, in modes that have them."""

    def told(self) -> dict[str, object]:
        """As `run.json` holds it: seconds of preparation, or the layouts by shape."""
        if self.pool is not None:
            return {"mode": self.mode, "preparation_s": round(self.pool.runner.seconds, 3)}
        return {
            "mode": self.mode,
            "total_variation": self.variation,
            "products": [
                {
                    "outputs": choice.shape[0],
                    "inputs": choice.shape[1],
                    "layout": {str(rows): choice.layouts[rows] for rows in ROWS},
                    "times_faster": {str(rows): round(choice.gain(rows), 3) for rows in ROWS},
                }
                for choice in self.choices
            ],
        }


def apply_mode(lm: CausalLM, mode: str, known: Known | None = None) -> Applied:
    """Change the model in place; refuses where its law would not stay the same.

    Sessions of fixed shapes are proven by the self-test of the pair, at the shapes of the run.

    Errors
    ------
        `UsageError` where the mode does not fit the model, `PairRefused` where the proof fails.
    """
    if mode == "eager":
        return Applied(mode)
    if mode != "packed":
        pool = lm.make_session = Pool(_runner(mode, lm))
        return Applied(mode, pool=pool)
    before = _logits(lm)
    choices = tuple(pack(lm.model, known))
    try:
        after = _logits(lm)
    except (RuntimeError, TypeError, AttributeError) as err:
        raise _refusal(lm, mode, str(err)) from err
    return Applied(mode, choices, _proven(lm, mode, before, after))


def _runner(mode: str, lm: CausalLM) -> Runner:
    """How steps of fixed shapes are carried out on the model's device."""
    cuda = lm.device.type == "cuda"
    if mode == "graph" and not cuda:
        raise UsageError(
            f"--forward graph: CUDA graphs need a CUDA device, not {lm.device.type}",
            hint="--forward eager, packed or compile",
        )
    inner: Runner = Compiled() if mode == "compile" else Eager()
    return CudaGraphs(inner=inner) if cuda else inner


def _logits(lm: CausalLM) -> dict[int, Tensor]:
    """Logits (width, V) by width, all of them passes that end at the same token."""
    size = min(PAST + max(ROWS), lm.context)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(lm.vocab_size, (1, size), generator=generator).to(lm.device)
    with torch.inference_mode():
        session = lm.session(1, size)
        session.prefill(ids, size - 1)
        return {
            width: session.feed(ids, size - width, width, size, keep=width)[0]
            for width in ROWS
            if width <= size
        }


def _proven(lm: CausalLM, mode: str, before: dict[int, Tensor], after: dict[int, Tensor]) -> float:
    """The largest total variation, refused where it or a top token is off."""
    floor = max(total_variation(before[1], before[width][-1:]) for width in before)
    limit = max(TV_LIMIT, FLOORS * floor)
    worst = max(total_variation(before[width], after[width]) for width in before)
    if not worst <= limit:
        raise _refusal(lm, mode, f"total variation {worst:.2g} against eager, limit {limit:.2g}")
    apart = max(float((before[1] - before[width][-1:]).abs().max()) for width in before)
    slack = max(FLOORS * apart, TOP_SLACK * float(before[1].abs().max()))
    for width in before:
        chosen = before[width].gather(1, after[width].argmax(dim=-1, keepdim=True)).squeeze(1)
        gap = float((before[width].amax(dim=-1) - chosen).max())
        if not gap <= slack:
            raise _refusal(lm, mode, f"another top token, {gap:.2g} below eager's")
    return worst


def _refusal(lm: CausalLM, mode: str, why: str) -> PairRefused:
    return PairRefused(
        f"--forward {mode} does not fit {lm.label}", where=why, hint="--forward eager"
    )
