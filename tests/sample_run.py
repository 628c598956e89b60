"""Result folders made from chosen numbers, through the real writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from specbench.records import Cell, Cycle, Generation, Prompt, Sampling
from specbench.result_files import files
from specbench.result_files import rows as row_of
from specbench.result_files.journal import RunWriter
from specbench.result_files.score_files import NUMBERS, ScoredGeneration, write_scores

STEP_S = 0.009
"""One step of the target alone."""


@dataclass(frozen=True)
class Draft:
    """One draft as the sample has it."""

    alpha: float = 0.8
    c: float = 0.07
    v: float = 1.3
    other_s: float = 0.0015
    spread: float = 0.2
    """How far prompts differ in α."""
    jitter: float = 0.03
    """How far a prompt's times differ between cells by chance, on the log scale."""
    swing: float = 0.0
    """How far every second prompt is faster, and the others slower, with the draft."""
    kind: str = "hf"
    dtype: str = "float32"
    fails_at: Mapping[int, str] = field(default_factory=dict)
    """γ to reason."""


THREE = {
    "embedded/draft": Draft(),
    "ngram:3": Draft(alpha=0.18, c=0.006, v=1.05, other_s=0.0006),
    "layerskip:8": Draft(alpha=0.6, c=0.34, v=1.2),
}


def build(
    folder: Path,
    drafts: Mapping[str, Draft] | None = None,
    *,
    gammas: Sequence[int] = range(1, 9),
    temperatures: Sequence[float] = (1.0,),
    prompts: int = 12,
    tokens: int = 96,
    seed: int = 0,
    finish: bool = True,
    stop_after: int | None = None,
    **manifest: object,
) -> Path:
    """Write a result folder; one stopped after some generations stays unfinished."""
    drafts = THREE if drafts is None else drafts
    asked = [Prompt(f"p{i}", "prose", f"text {i}", (1, 2 + i)) for i in range(prompts)]
    about = _manifest(drafts, gammas, temperatures, tokens)
    writer = RunWriter.create(folder, {**about, **manifest}, asked, "9f31")
    made = list(_all(drafts, gammas, temperatures, asked, tokens, seed))
    _write(folder, made if stop_after is None else made[:stop_after])
    if stop_after is None and finish:
        writer.finish({"ended": "2026-11-30T09:17:16Z"})
    return folder


def built_once(home: Path, draft: Draft) -> Callable[..., Path]:
    """Folders below `home` by their parameters, each written once; `draft` where none is named."""
    made: dict[str, Path] = {}

    def one(chosen: Draft = draft, label: str = "a", **how: Any) -> Path:
        key = repr((chosen, label, sorted(how.items())))
        if key not in made:
            how = {"gammas": [2, 4], "prompts": 16, "tokens": 48, **how}
            made[key] = build(home / f"{len(made)}", {label: chosen}, **how)
        return made[key]

    return one


def score(folder: Path) -> Path:
    """Give a folder the scores of laws that are one-hot: a token is kept for certain, or never.

    A replay of such texts takes the very cycles that the run took.
    """
    texts: dict[str, dict[tuple[str, int], list[dict[str, object]]]] = {}
    for path in (folder / "cycles").glob("*.jsonl"):
        for row in files.json_lines(path):
            key = (str(row["prompt_id"]), int(str(row["repeat"])))
            texts.setdefault(str(row["cell"]), {}).setdefault(key, []).append(row)
    for cell, found in texts.items():
        write_scores(folder, cell, [_scored(key, rows) for key, rows in found.items()])
    return folder


def _scored(key: tuple[str, int], rows: Sequence[Mapping[str, Any]]) -> ScoredGeneration:
    kept: list[float] = []
    for row in sorted(rows, key=lambda r: int(r["index"])):
        accepted, size = row["num_accepted"], len(row["emitted_ids"])
        # The last token is a bonus if all drafts were kept, else a correction.
        full = accepted == len(row["drafted_ids"])
        kept += [1.0] * accepted + [float(full)] * (size - accepted)
    numbers = {name: np.array(kept) for name in NUMBERS}
    delivered = sum(int(row["num_delivered"]) for row in rows)
    ids = np.arange(len(kept))
    return ScoredGeneration(*key, ids, delivered, ids, numbers)


def _write(folder: Path, made: Sequence[tuple[Cell, int, Generation]]) -> None:
    """The rows of many groups at once: one by one they would wait for the disk each time."""
    good = [(cell, g) for cell, _, g in made if g.status == "ok"]
    tokens = [row_of.tokens_object(cell, g, None) for cell, g in good]
    positions = [row for cell, g in good for row in row_of.position_rows(cell, g)]
    rows = [row_of.generation_row(cell, g) for cell, _, g in made]
    cycles = [
        row_of.cycle_object(cell, g, index, cycle)
        for cell, g in good
        for index, cycle in enumerate(g.cycles)
    ]
    files.append(folder / "cycles" / "sample.jsonl", "".join(map(files.json_line, cycles)))
    files.append(folder / "tokens.jsonl", "".join(map(files.json_line, tokens)))
    files.append(folder / "positions.csv", "".join(map(files.csv_line, positions)))
    files.append(folder / "generations.csv", "".join(map(files.csv_line, rows)))


def _all(
    drafts: Mapping[str, Draft],
    gammas: Sequence[int],
    temperatures: Sequence[float],
    prompts: Sequence[Prompt],
    tokens: int,
    seed: int,
) -> Iterator[tuple[Cell, int, Generation]]:
    for place, (label, draft) in enumerate(drafts.items()):
        for temperature in temperatures:
            for group, prompt in enumerate(prompts):
                rng = np.random.default_rng((seed, place, int(10 * temperature), group))
                alpha = _moved(draft.alpha, draft.spread * rng.standard_normal())
                for gamma in (0, *gammas):
                    cell = Cell(label, gamma, Sampling(temperature))
                    yield cell, group, _generation(prompt, draft, gamma, alpha, tokens, rng)


def _moved(alpha: float, by: float) -> float:
    """α moved on the logit scale."""
    if not 0 < alpha < 1:
        return alpha
    odds = alpha / (1 - alpha) * float(np.exp(by))
    return odds / (1 + odds)


def _generation(
    prompt: Prompt, draft: Draft, gamma: int, alpha: float, tokens: int, rng: np.random.Generator
) -> Generation:
    if gamma in draft.fails_at:
        return Generation(prompt.prompt_id, 0, prompt.token_ids, "oom", draft.fails_at[gamma])
    turn = 1 if prompt.token_ids[-1] % 2 else -1
    swing = draft.swing * turn if gamma else 0.0
    pace = float(np.exp(draft.jitter * rng.standard_normal() + swing))
    cycles, left = [], tokens
    while left > 0:
        misses = np.flatnonzero(rng.random(gamma) >= alpha)
        kept = int(misses[0]) if len(misses) else gamma
        cycles.append(_cycle(kept, min(left, kept + 1), draft, gamma, pace))
        left -= kept + 1
    return Generation(
        prompt_id=prompt.prompt_id,
        repeat=0,
        prompt_token_ids=prompt.token_ids,
        finish_reason="length",
        token_ids=tuple(int(i) for i in rng.integers(3, 500, tokens)),
        cycles=tuple(cycles),
        prefill_s=0.02,
        cpu_s=sum(c.seconds for c in cycles),
    )


def _cycle(kept: int, delivered: int, draft: Draft, gamma: int, pace: float) -> Cycle:
    ratio = 1 + (draft.v - 1) * (1 - 0.5**gamma) if gamma else 1.0
    return Cycle(
        drafted_ids=tuple(range(gamma)),
        num_accepted=kept,
        emitted_ids=tuple(range(kept + 1)),
        num_delivered=delivered,
        draft_s=pace * draft.c * gamma * STEP_S,
        verify_s=pace * ratio * STEP_S,
        other_s=pace * (draft.other_s + 0.0001 * gamma if gamma else 0.0002),
    )


def _manifest(
    drafts: Mapping[str, Draft], gammas: Sequence[int], temperatures: Sequence[float], tokens: int
) -> dict[str, object]:
    settings = {
        "target": "embedded/target",
        "engine": "torch",
        "device": "cpu",
        "dtype": "float32",
        "forward": "eager",
        "threads": 1,
        "dataset": "passages",
        "seed": 0,
        "repeats": 1,
        "max_new_tokens": tokens,
    }
    return {
        "recipe": {
            "name": "embedded",
            "target": {"name": "embedded/target", "ref": "embedded"},
            "drafts": [{"name": label, "kind": "self"} for label in drafts],
            "gamma": list(gammas),
            "sampling": {"temperature": list(temperatures), "max_new_tokens": tokens},
        },
        "environment": {"torch": "2.13.0", "transformers": "5.24.0", "cores": 2},
        "settings": settings,
        "drafts": {
            label: {"kind": draft.kind, "dtype": draft.dtype} | _simulated(draft)
            for label, draft in drafts.items()
        },
        "started": "2026-11-30T09:12:04Z",
        "verified": dict.fromkeys(drafts, "lossless"),
    }


def _simulated(draft: Draft) -> dict[str, float]:
    return {"simulated_c": draft.c} if draft.kind == "synthetic" else {}
