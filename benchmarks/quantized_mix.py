"""α, time and predicted speedup of mixes of few bits, by processor time: for a busy machine.

The target writes a text per prompt at each temperature; each mix is scored along them, and steps
are timed by this process's CPU time, mixes in turn. One thread. Printed and written as CSV:

    alpha      mean Σ min(p, q) over the texts, ± its standard error over prompts; at temperature 0
               the share of tokens that are the mix's first choice, too
    step_ms    median of a one-token step, beside the target's own, `c` their ratio
    τ, speedup at each γ: replayed over the texts; τ / (γ·c + v), with v the target's block pass
    mb         of the rounded weights

Example: python -m benchmarks.quantized_mix --target .models/smollm2-full --prompts 4 --tokens 24
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from specbench.drafts import Context, open_draft
from specbench.estimators.replay import expected_cycles
from specbench.measure.score import TextScorer, TextScores
from specbench.models import loading
from specbench.models.forwards import apply_mode
from specbench.models.lm import CausalLM
from specbench.models.sampling import draw, first_max, law
from specbench.prompt_sets.prompts import prepare
from specbench.records import Sampling

MIXES = (
    "",
    "keep=lm_head",
    "keep=lm_head+down_proj",
    "bits=4",
    "bits=4,keep=lm_head",
    "bits=4,int8=down_proj,inputs=bfloat16",
    "inputs=bfloat16",
    "inputs=bfloat16,keep=lm_head",
    "bits=4,int8=layers,inputs=bfloat16",
)
GAMMAS = (1, 2, 3, 4, 6)
PAST = 64
"""Tokens behind which steps are timed."""


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", default="embedded")
    parser.add_argument("--dataset", default="general")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--forward", default="eager", choices=("eager", "packed"))
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--no-alpha", action="store_true")
    parser.add_argument("--mix", action="append", help="options of quantized; repeatable")
    parser.add_argument("--out", type=Path, default=Path("quantized_mix.csv"))
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    source = loading.resolve(options.target, "--target")
    tokenizer = loading.load_tokenizer(source)
    target = CausalLM(loading.load_model(source, device=torch.device("cpu"), dtype=None), "target")
    apply_mode(target, options.forward)
    context = Context(target, tokenizer, target.device)
    drafts = {mix: opened(mix, context) for mix in options.mix or MIXES}
    with torch.inference_mode():
        found: dict[str, dict[str, Any]] = {mix: {"mb": d.nbytes() / 2**20}
                                            for mix, d in drafts.items()}  # fmt: skip
        passes = None if options.no_times else timed(target, drafts, found, options.rounds)
        if not options.no_alpha:
            score(target, drafts, found, texts(target, tokenizer, options), passes)
    rows = pd.DataFrame([{"mix": f"quantized:{mix}".rstrip(":"), **f} for mix, f in found.items()])
    rows.to_csv(options.out, index=False)
    print(rows.round(3).to_string(index=False))
    if passes:
        print("target, ms by tokens fed:", {n: round(1e3 * s, 1) for n, s in passes.items()})


def opened(mix: str, context: Context) -> Any:
    """The draft of a mix."""
    parts = (part.split("=") for part in mix.split(",") if part)
    given: dict[str, Any] = {k: int(v) if v.isdigit() else v for k, v in parts}
    return open_draft("quantized", "", given, mix or "int8", context)


def timed(
    target: CausalLM, drafts: dict[str, Any], found: dict[str, dict[str, Any]], rounds: int
) -> dict[int, float]:
    """Seconds of the target's passes by tokens fed; steps of each mix go into its row."""
    models = {None: target, **{mix: d.lm for mix, d in drafts.items()}}
    widths = {None: (1, *(g + 1 for g in GAMMAS)), **dict.fromkeys(drafts, (1,))}
    tokens = torch.arange(3, PAST + 11).unsqueeze(0)
    sessions = {}
    for mix, lm in models.items():
        sessions[mix] = lm.session(1, PAST + 8)
        sessions[mix].prefill(tokens, PAST)
    spent: dict[tuple[str | None, int], list[float]] = {}
    for _ in range(rounds):
        for mix, session in sessions.items():
            for width in widths[mix]:
                start = time.process_time()
                session.feed(tokens, PAST, width, PAST + width, keep=width)
                spent.setdefault((mix, width), []).append(time.process_time() - start)
    median = {key: statistics.median(values[1:]) for key, values in spent.items()}
    for mix in drafts:
        step = median[mix, 1]
        found[mix] |= {"step_ms": 1e3 * step, "c": step / median[None, 1]}
    return {width: median[None, width] for width in widths[None]}


Written = dict[float, list[tuple[list[int], list[int]]]]


def texts(target: CausalLM, tokenizer: Any, options: Any) -> Written:
    """By temperature, prompts and what the target writes behind them."""
    from specbench.settings.recipe_parts import PromptsConfig

    config = PromptsConfig(dataset=options.dataset, num=options.prompts)
    ids = [list(one.token_ids) for one in prepare(config, tokenizer).first]
    return {
        temperature: [(row, written(target, row, temperature, options.tokens)) for row in ids]
        for temperature in (0.0, 1.0)
    }


def written(target: CausalLM, prompt: list[int], temperature: float, count: int) -> list[int]:
    """A text of the target, seeded by its prompt."""
    generator = torch.Generator().manual_seed(len(prompt))
    tokens = torch.zeros(1, len(prompt) + count, dtype=torch.int64)
    tokens[0, : len(prompt)] = torch.tensor(prompt)
    session = target.session(1, tokens.shape[1])
    session.prefill(tokens, len(prompt) - 1)
    for at in range(len(prompt), tokens.shape[1]):
        logits = session.feed(tokens, at - 1, 1, at, keep=1)[:, 0]
        if temperature:
            u = torch.rand(1, generator=generator, dtype=torch.float64)
            tokens[0, at] = draw(law(logits, Sampling(temperature)), u)
        else:
            tokens[0, at] = first_max(logits)[1]
    kept: list[int] = tokens[0, len(prompt) :].tolist()
    return kept


def score(
    target: CausalLM,
    drafts: dict[str, Any],
    found: dict[str, dict[str, Any]],
    by_heat: Written,
    passes: dict[int, float] | None,
) -> None:
    """α, and τ and speedup by γ, into each mix's row."""
    for mix, draft in drafts.items():
        row = found[mix]
        for heat, pairs in by_heat.items():
            scorer = TextScorer(target, draft, Sampling(heat))
            scores = [scorer.score(p, t, np.full(len(t), -1)) for p, t in pairs]
            row |= figures(scores, f"T{heat:g}", row.get("c"), passes)


def figures(
    scores: Sequence[TextScores], name: str, c: float | None, passes: dict[int, float] | None
) -> dict[str, float]:
    """What texts of one temperature say."""
    each = [float(one.overlap.mean()) for one in scores]
    tokens = sum(len(one) for one in scores)
    row = {
        f"alpha {name}": sum(float(one.overlap.sum()) for one in scores) / tokens,
        f"± {name}": statistics.stdev(each) / len(each) ** 0.5,
    }
    for gamma in GAMMAS:
        tau = tokens / sum(expected_cycles(one.s, gamma) for one in scores)
        row[f"τ {name} γ{gamma}"] = tau
        if c and passes:
            row[f"S {name} γ{gamma}"] = tau / (gamma * c + passes[gamma + 1] / passes[1])
    return row


if __name__ == "__main__":
    main()
