"""The table of forward modes: how the forwards of target and draft are carried out.

Pure data, so that recipes can be checked and listed without loading any model library.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench.errors import UsageError

WIDEST = 32
"""Tokens per row of the widest pass of fixed shape; a prompt is fed in wider ones."""


@dataclass(frozen=True, slots=True)
class Mode:
    """One forward mode as `ls forwards` shows it."""

    name: str
    what: str
    needs: str
    fixed: bool = False
    """Whether steps and verify passes have fixed shapes, up to `WIDEST`."""


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("eager", "the model's own modules, one after the other", "–"),
        Mode(
            "packed",
            "linear layers joined, weights in the layout that is fastest here",
            "a CPU",
        ),
        Mode(
            "compile",
            "torch.compile at fixed shapes, one compilation per width",
            "a compiler",
            True,
        ),
        Mode("graph", "one CUDA graph per query length over a slab of fixed size", "CUDA", True),
    )
}


def check_mode(name: str, gamma: int = 0) -> None:
    """Refuse a mode that there is not, or a γ whose verify pass would not be of fixed shape."""
    if name not in MODES:
        raise UsageError(
            f'--forward "{name}": no such forward mode', hint=f"one of {', '.join(MODES)}"
        )
    if MODES[name].fixed and gamma >= WIDEST:
        raise UsageError(
            f"--gamma {gamma}: --forward {name} has passes of fixed shape up to {WIDEST} tokens",
            hint=f"--gamma up to {WIDEST - 1}, or --forward eager",
        )
