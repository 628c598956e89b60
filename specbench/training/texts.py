"""What a draft learns from: windows of given texts, or of the target's own samples.

Samples are what a draft will meet: the text behind a prompt is the target's. They are drawn by the
engine, in batches, in shards; a window is taken from the latest ones. What a step sees depends on
the seed and the step alone.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from specbench.engines.torch_engine import TorchEngine
from specbench.errors import PairRefused, UsageError
from specbench.prompt_sets.prompts import prepare
from specbench.records import Cell, Generation, Prompt, Sampling
from specbench.settings.recipe_parts import PromptsConfig
from specbench.training.plan import FOLDER, Plan
from specbench.training.store import write_tensors
from specbench.wording import count

SHARD_STEPS = 50
"""Steps that a shard of samples is the newest for."""
FIRST = 4
"""Shards that are there from the first step on."""
KEPT = 24
"""Latest shards that windows are taken from."""
LAW = Sampling(1.0)
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and what the target wrote behind it."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Prompts to learn from and prompts that are held out, with notes for the user."""

    train: tuple[Prompt, ...]
    held: tuple[Prompt, ...]
    notes: tuple[str, ...]


def split_prompts(plan: Plan, tokenizer: Any) -> Split:
    """The last prompts are held out, each cut to half a window."""
    config = PromptsConfig(
        dataset=plan.dataset,
        categories=plan.category,
        num=plan.num_prompts or None,
        raw=plan.raw_prompt or plan.text == "given",
    )
    found = prepare(config, tokenizer)
    learnt = len(found.first) - plan.held_out
    if learnt < 1:
        raise UsageError(
            f"{count(len(found.first), 'prompt')}, and --held-out takes {plan.held_out}: "
            "none is left to learn",
            where=f"--dataset {plan.dataset}",
            hint="more prompts, or a smaller --held-out",
        )
    room = max(1, plan.window // 2)
    held = [dataclasses.replace(p, token_ids=p.token_ids[:room]) for p in found.first[learnt:]]
    return Split(found.first[:learnt], tuple(held), found.notes)


class Given:
    """The texts of a data set as one row, an end of text between them where there is one."""

    def __init__(self, plan: Plan, prompts: Sequence[Prompt], tokenizer: Any) -> None:
        lines = Path(plan.dataset).suffix == ".txt"
        if lines:
            # A line of a text file is no text of its own.
            ids = list(tokenizer("\n".join(p.text for p in prompts))["input_ids"])
        else:
            end = tokenizer.eos_token_id
            between = [] if end is None else [int(end)]
            ids = [i for p in prompts for i in (*p.token_ids, *between)]
        self._row = _long_enough(np.array(ids, dtype=np.int64), plan)
        self._plan = plan

    def windows(self, step: int) -> torch.Tensor:
        """Ids (batch, window) of a step."""
        return drawn(self._row, self._plan, step)


class Sampled:
    """The latest samples as one row, made when they are first needed and kept in files."""

    def __init__(
        self,
        plan: Plan,
        write: Callable[[str, Sequence[Prompt], int], list[Text]],
        prompts: Sequence[Prompt],
    ) -> None:
        self._plan, self._write, self._prompts = plan, write, prompts
        self._shards: dict[int, Ids] = {}

    def windows(self, step: int) -> torch.Tensor:
        """Ids (batch, window) of a step."""
        newest = FIRST - 1 + step // SHARD_STEPS
        wanted = range(max(0, newest - KEPT + 1), newest + 1)
        rows = [self._shard(index) for index in wanted]
        for old in [index for index in self._shards if index not in wanted]:
            del self._shards[old]
        return drawn(_long_enough(np.concatenate(rows), self._plan), self._plan, step)

    def _shard(self, index: int) -> Ids:
        if index not in self._shards:
            batch, count = self._plan.sample_batch, len(self._prompts)
            chosen = [
                dataclasses.replace(
                    self._prompts[n % count], prompt_id=f"{self._prompts[n % count].prompt_id}/{n}"
                )
                for n in range(index * batch, (index + 1) * batch)
            ]
            texts = self._write(f"{index:05d}", chosen, index)
            ids = [i for text in texts for i in (*text.prompt, *text.reply)]
            self._shards[index] = np.array(ids, dtype=np.int64)
        return self._shards[index]


def drawn(row: Ids, plan: Plan, step: int) -> torch.Tensor:
    """Random windows (batch, window) of a row; the draw depends on seed and step alone."""
    rng = np.random.default_rng([plan.seed, step])
    starts = rng.integers(0, len(row) - plan.window + 1, size=plan.batch_size)
    return torch.from_numpy(np.stack([row[start : start + plan.window] for start in starts]))


def _long_enough(row: Ids, plan: Plan) -> Ids:
    if len(row) < plan.window:
        raise UsageError(
            f"all texts together have {count(len(row), 'token')}, and a window is {plan.window}",
            where=f"--dataset {plan.dataset}",
            hint="more text, or a smaller --window",
        )
    return row


class Writer:
    """Has the target write behind prompts, and keeps what it wrote."""

    def __init__(
        self,
        engine: TorchEngine,
        folder: Path,
        batch: int,
        prompts: Sequence[Prompt],
        say: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._say, self._told = say, False
        self._folder = folder / FOLDER / "samples"
        self._batch = self._tested(batch, prompts, say)

    def _tested(self, batch: int, prompts: Sequence[Prompt], say: Callable[[str], None]) -> int:
        """Batches where the target can be batched."""
        try:
            self._engine.self_test((list(prompts) * batch)[:batch], batch, 1)
        except PairRefused as err:
            if batch == 1:
                raise
            say(f"note: texts are sampled one by one ({err.what})")
            return self._tested(1, prompts, say)
        return batch

    def __call__(self, name: str, prompts: Sequence[Prompt], repeat: int) -> list[Text]:
        """Texts at temperature 1, from their file or made now; too long a prompt has none."""
        path = self._folder / f"{name}.safetensors"
        if path.exists():
            return _read(path)
        if repeat < FIRST:
            self._say(f"sampling {name}: {count(len(prompts), 'text')}")
        found: list[Generation] = []
        for at in range(0, len(prompts), self._batch):
            some = prompts[at : at + self._batch]
            found += self._engine.generate(Cell("", 0, LAW, len(some)), some, repeat)
        good = [Text(g.prompt_token_ids, g.token_ids) for g in found if g.status == "ok"]
        self._tell_failed(found, len(good))
        _write(path, good)
        return good

    def _tell_failed(self, found: Sequence[Generation], good: int) -> None:
        """Say once why prompts have no text; refuse where none has."""
        reasons = [g.reason for g in found if g.status != "ok"]
        if not good:
            raise UsageError(
                "the target wrote no text",
                where="; ".join(dict.fromkeys(reasons)),
                hint="other prompts, or a smaller --sample-batch",
            )
        if reasons and not self._told:
            self._told = True
            self._say(
                f"note: no text for {len(reasons)} of {count(len(found), 'prompt')}: {reasons[0]}"
            )


def _write(path: Path, texts: Sequence[Text]) -> None:
    ids = [i for text in texts for i in (*text.prompt, *text.reply)]
    sizes = [[len(text.prompt), len(text.reply)] for text in texts]
    write_tensors(path, {"ids": torch.tensor(ids)}, {"sizes": json.dumps(sizes)})


def _read(path: Path) -> list[Text]:
    from safetensors import safe_open

    try:
        ids = load_file(path)["ids"].tolist()
        with safe_open(path, framework="pt") as found:
            sizes = json.loads((found.metadata() or {})["sizes"])
    except (SafetensorError, KeyError, ValueError) as err:
        raise UsageError(
            f"{path} cannot be read",
            where=str(err).partition("\n")[0],
            hint="delete it: it is sampled anew, to the same ids",
        ) from err
    texts, at = [], 0
    for prompt, reply in sizes:
        text = tuple(ids[at : at + prompt + reply])
        texts.append(Text(text[:prompt], text[prompt:]))
        at += prompt + reply
    return texts
