"""The table of forward modes: how the forwards of target and draft are carried out.

Pure data, so that recipes can be checked and listed without loading any model library.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class Mode:
    """One forward mode as `ls forwards` shows it."""

    name: str
    what: str
    needs: str


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("eager", "the model's own modules, one after the other", "–"),
        Mode(
            "packed",
            "linear layers joined, weights in the layout that is fastest here",
            "a CPU",
        ),
        Mode("compile", "torch.compile at fixed shapes, one compilation per width", "a compiler"),
        Mode("graph", "one CUDA graph per query length over a slab of fixed size", "CUDA"),
    )
}


def check_mode(name: str) -> None:
    """Refuse a mode that there is not."""
    if name not in MODES:
        raise UsageError(
            f'--forward "{name}": no such forward mode', hint=f"one of {', '.join(MODES)}"
        )
