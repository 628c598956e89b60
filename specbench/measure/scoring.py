"""Score what a block emitted, after its times were taken, and keep it in `scores/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specbench.engines.torch_engine import TorchEngine
from specbench.measure.score import Ints, TextScores
from specbench.measure.score_starts import scorer_of
from specbench.models.timing import release_heap
from specbench.records import Cell, Prompt, Sampling
from specbench.result_files.results import read_cycles
from specbench.result_files.score_files import NUMBERS, ScoredGeneration, score_path, write_scores
from specbench.settings.recipe import Block

_COLUMNS = (
    "cell",
    "prompt_id",
    "repeat",
    "index",
    "gamma",
    "drafted_ids",
    "num_accepted",
    "emitted_ids",
    "num_delivered",
    "censor",
)


@dataclass(frozen=True)
class Emitted:
    """One generation's text as decided, read back from its cycles."""

    prompt_id: str
    repeat: int
    text: Ints
    delivered: int
    tested: Ints
    begins: Ints
    """Where the cycle of each token began."""


def score_block(
    folder: Path,
    block: Block,
    engine: TorchEngine,
    prompts: Mapping[str, Prompt],
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Score the cells of a block that have cycles and no scores yet. The models are open.

    `stop` is asked between texts; a block that it leaves out a resume scores.
    """
    missing = missing_scores(folder, block)
    if not missing or engine.draft is None:
        return
    scorer = _Scorer(engine, prompts, block.sampling, max(block.gammas))
    found = emitted(folder, missing)
    scored: dict[str, list[ScoredGeneration]] = {cell: [] for cell in found}
    # Prompt by prompt, so that each is fed once; the longest text first, since at temperature 0
    # the other cells' texts are beginnings of it.
    every = [(cell, one) for cell, texts in found.items() for one in texts]
    order = {prompt: place for place, prompt in enumerate(prompts)}
    for cell, one in sorted(every, key=lambda e: (order[e[1].prompt_id], -len(e[1].text))):
        if stop():
            return
        scored[cell].append(scorer.scored(one))
    for cell, texts in scored.items():
        write_scores(folder, cell, texts)
    del scorer, scored
    release_heap()


def missing_scores(folder: Path, block: Block) -> dict[str, Cell]:
    """The cells of a block that have no scores yet, by id."""
    return {c.id: c for c in block.cells if not score_path(folder, c.id).exists()}


def emitted(folder: Path, cells: Mapping[str, Cell]) -> dict[str, list[Emitted]]:
    """The texts of some cells, by cell, in the order of prompts and repeats."""
    rows: dict[str, list[dict[str, Any]]] = {cell: [] for cell in cells}
    for table in read_cycles(folder, _COLUMNS):
        for row in table[table["cell"].isin(list(cells))].to_dict("records"):
            rows[str(row["cell"])].append({str(k): v for k, v in row.items()})
    return {cell: list(_texts(found)) for cell, found in rows.items() if found}


def _texts(rows: Sequence[Mapping[str, Any]]) -> Iterator[Emitted]:
    groups: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((str(row["prompt_id"]), int(row["repeat"])), []).append(row)
    for (prompt_id, repeat), found in groups.items():
        cycles = sorted(found, key=lambda r: int(r["index"]))
        sizes = np.array([len(c["emitted_ids"]) for c in cycles], dtype=np.int64)
        yield Emitted(
            prompt_id,
            repeat,
            np.array([i for c in cycles for i in c["emitted_ids"]], dtype=np.int64),
            sum(int(c["num_delivered"]) for c in cycles),
            np.array([i for c in cycles for i in _tested(c)], dtype=np.int64),
            np.repeat(np.cumsum(sizes) - sizes, sizes),
        )


def _tested(cycle: Mapping[str, Any]) -> list[int]:
    """The drafted token tested at each emitted position of a cycle, -1 behind the last."""
    accepted, drafted = int(cycle["num_accepted"]), list(cycle["drafted_ids"])
    count = accepted if cycle["censor"] == "eos" else min(accepted + 1, len(drafted))
    return drafted[:count] + [-1] * (len(cycle["emitted_ids"]) - count)


class _Scorer:
    """Scores texts of one block; greedy texts once for all cells that share them."""

    def __init__(
        self, engine: TorchEngine, prompts: Mapping[str, Prompt], sampling: Sampling, depth: int
    ) -> None:
        self.prompts = prompts
        self.sampling = sampling
        self.scorer = scorer_of(engine.target, engine.draft, sampling, depth)
        self.greedy: dict[str, list[tuple[Ints, TextScores]]] = {}

    def scored(self, found: Emitted) -> ScoredGeneration:
        """The scores of one generation."""
        scores = self._greedy(found) if self.sampling.greedy else self._fresh(found)
        numbers = {name: getattr(scores, name) for name in NUMBERS}
        return ScoredGeneration(
            found.prompt_id,
            found.repeat,
            found.text,
            found.delivered,
            found.tested,
            numbers,
            scores.by_start,
        )

    def _fresh(self, found: Emitted) -> TextScores:
        prompt = self.prompts[found.prompt_id].token_ids
        return self.scorer.score(prompt, found.text.tolist(), found.tested, found.begins)

    def _greedy(self, found: Emitted) -> TextScores:
        """Both laws are one-hot: a tested token is kept if and only if it is the text's own."""
        size = len(found.text)
        known = self.greedy.setdefault(found.prompt_id, [])
        fits = (k for t, k in known if len(t) >= size and np.array_equal(t[:size], found.text))
        scores = next(fits, None)
        if scores is None:
            scores = self._fresh(found)
            known.append((found.text, scores))
        columns = {name: getattr(scores, name)[:size] for name in NUMBERS}
        tested = found.tested >= 0
        same = np.where(tested, (found.tested == found.text).astype(np.float64), np.nan)
        columns["keep"] = same
        if scores.by_start is None:
            return TextScores(**columns)
        # Tested in cycles of its own, under their laws.
        columns |= {"overlap": same, "s": same, "log_q": np.where(same == 1, 0.0, np.nan)}
        return TextScores(**columns, by_start=scores.by_start[:size])
