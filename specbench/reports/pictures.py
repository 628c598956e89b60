"""The charts of a report as a page takes them: where each lies, and what it shows in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.judgement.view import Setting

SHOWN = {
    "speedup_vs_gamma": "Measured speedup against γ with 95 % intervals; the closed form dashed",
    "tau_vs_gamma": "Tokens per cycle against γ with 95 % intervals; the closed form dashed",
    "time_per_token": "Milliseconds per emitted token by phase, for plain decoding and each γ",
    "hazards": "Share kept at each position in the cycle, one α dashed; how many were tested",
    "gap_waterfall": "Tokens per cycle from the closed form by parts to the measurement",
    "alpha_cost_map": "Best speedup by formula over c and α, each draft a mark; hatched below 1",
}
"""One sentence for each chart."""


@dataclass(frozen=True)
class Picture:
    """One chart of one setting, in each format that was written."""

    chart: str
    setting: Setting
    files: tuple[Path, ...]


def image(pictures: Sequence[Picture], chart: str, setting: Setting) -> str:
    """The chart as Markdown, beside the page's own folder; empty where it was not drawn."""
    for one in pictures:
        if (one.chart, one.setting) == (chart, setting):
            path = next((p for p in one.files if p.suffix == ".png"), None)
            if path is not None:
                return f"![{SHOWN[chart]}]({path.parent.name}/{path.name})"
    return ""
