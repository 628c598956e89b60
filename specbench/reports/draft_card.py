"""The model card of a trained draft: how it was made, and what it reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specbench.reports.markdown_text import escaped
from specbench.training.plan import Plan
from specbench.version import VERSION
from specbench.wording import count, fixed

Row = Mapping[str, float | None]

_CARD = """---
library_name: {library}
tags: [speculative-decoding, specbench]
---

# A draft for {target}

{what} Made by `specbench train-draft` {version}; load it as

```sh
specbench run -t TARGET -d {kind}:FOLDER
```

It drafts for this target and its vocabulary. It is no model to be used alone: it was taught to say
what the target says.

## How it was made

| | |
| --- | --- |
{rows}

## What it reached

Mean of Σ min(p, q) at temperature 1 on the target's own texts behind {held}, which
is the share of its drafts that would be kept:

| step | seconds | held-out α | 95 % |
| --- | --- | --- | --- |
{curve}

The whole curve is in `curve.csv`.
"""
_WHAT = {
    "hf": "A small causal language model with the target's vocabulary, {parameters:,} parameters.",
    "eagle": "A one-layer head on the target's hidden states (EAGLE), {parameters:,} parameters of "
    "its own; embeddings and output head are the target's.",
}
_OTHERS = {"hf": ("unroll", "draft_vocab"), "eagle": ("layers", "width", "from_layers")}
"""What a plan holds for the other kind."""
MOST_ROWS = 12


def card(plan: Plan, told: Mapping[str, Any], curve: Sequence[Row], parameters: int) -> str:
    """The card as Markdown."""
    rows = {**plan.told(), **{name: _listed(value) for name, value in told.items()}}
    for name in _OTHERS[plan.kind]:
        del rows[name]
    known = {name: value for name, value in rows.items() if value not in ("", 0, [], None)}
    shown = [(name, escaped(str(value))) for name, value in known.items()]
    return _CARD.format(
        library="transformers" if plan.kind == "hf" else "specbench",
        target=escaped(plan.target),
        what=_WHAT[plan.kind].format(parameters=parameters),
        version=VERSION,
        kind=plan.kind,
        rows="\n".join(f"| {name.replace('_', ' ')} | {value} |" for name, value in shown),
        held=count(plan.held_out, "held-out prompt"),
        curve="\n".join(map(_line, _some(curve))),
    )


def _some(curve: Sequence[Row]) -> list[Row]:
    """The first and the last row, and as many between as a card can show."""
    every = max(1, -(-len(curve) // MOST_ROWS))
    return [*curve[:-1:every], *curve[-1:]]


def _line(row: Row) -> str:
    low, high = row["alpha_low"], row["alpha_high"]
    interval = "" if low is None else f"{fixed(low, 3)} to {fixed(high, 3)}"
    return f"| {row['step']} | {fixed(row['seconds'], 0)} | {fixed(row['alpha'], 3)} | {interval} |"


def _listed(value: object) -> object:
    """A mapping as its names and values."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return value
