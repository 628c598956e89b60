"""What holds for the engine `torch` with models from folders, by random batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import models
import pytest
from at_random import FEW, REPEATABLE, samplings, told, weights
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.engines.base import DraftRef, Settings
from specbench.engines.torch_engine import TorchEngine
from specbench.records import Cell, Generation, Prompt, Sampling

VOCAB = 8
ENDS = ([], [3], [2, 6])
"""EOS ids of each pair, as its generation config has them."""
KINDS = ("self", "hf", "hf")


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TorchEngine]]:
    """One open engine per pair, float64."""
    folder = tmp_path_factory.mktemp("pairs")
    made = []
    for n, (ends, kind) in enumerate(zip(ENDS, KINDS, strict=True)):
        target = weights("llama", n, VOCAB, 2)
        at = models.save(target, folder / f"t{n}", generation={"eos_token_id": ends or None})
        other = models.save(models.noisy(target, 0.1), folder / f"d{n}")
        engine = TorchEngine(Settings(str(at), f"t{n}", dtype="float64", device="cpu"))
        engine.open_target()
        engine.open_draft(DraftRef("d", kind, str(other) if kind == "hf" else ""))
        made.append(engine)
    yield made
    for engine in made:
        engine.close()


@st.composite
def asked(draw: st.DrawFn) -> dict[str, Any]:
    ids = st.integers(0, VOCAB - 1)
    # Some prompts fill the context of 64, so that no token fits behind them.
    length = st.sampled_from([1, 2, 5, 30, 62, 63, 64, 70])
    texts = draw(st.lists(st.tuples(length, ids, ids), min_size=1, max_size=4))
    prompts = [
        Prompt(f"p{n}", "", "", tuple((a + b * i) % VOCAB for i in range(size)))
        for n, (size, a, b) in enumerate(texts)
    ]
    return {
        "pair": draw(st.integers(0, len(ENDS) - 1)),
        "prompts": prompts,
        "gamma": draw(st.integers(0, 5)),
        "sampling": draw(samplings),
        "max_new": draw(st.integers(1, 9)),
        "seed": draw(st.integers(0, 2**63 - 1)),
        "repeat": draw(st.integers(0, 2)),
    }


def generated(engine: TorchEngine, how: dict[str, Any], prompts: list[Prompt]) -> list[Generation]:
    engine.settings = replace(engine.settings, max_new_tokens=how["max_new"], seed=how["seed"])
    cell = Cell("d", how["gamma"], how["sampling"], len(prompts))
    return engine.generate(cell, prompts, how["repeat"])


def check_generate(engines: list[TorchEngine], how: dict[str, Any]) -> None:
    """Batches, orders and neighbours that do not fit change no row; the loop alone gives it too."""
    engine = engines[how["pair"]]
    prompts = how["prompts"]
    found = generated(engine, how, prompts)
    assert [g.prompt_id for g in found] == [p.prompt_id for p in prompts]
    back = generated(engine, how, prompts[::-1])[::-1]
    for prompt, here, moved in zip(prompts, found, back, strict=True):
        assert outcome(here) == outcome(moved) == outcome(generated(engine, how, [prompt])[0])
        if len(prompt.token_ids) >= 64:
            assert (here.status, here.token_ids, here.cycles) == ("error", (), ())
            assert "leaves no room" in here.reason
            continue
        assert (here.status, here.repeat) == ("ok", how["repeat"])
        first = generated(engine, {**how, "repeat": 0}, [prompt])[0]
        assert outcome(first) == by_the_loop(engine, how, prompt)


def outcome(g: Generation) -> tuple[object, ...]:
    return (g.status, g.finish_reason, g.token_ids, *told(g))


def by_the_loop(engine: TorchEngine, how: dict[str, Any], prompt: Prompt) -> tuple[object, ...]:
    """The same row alone, from `models.run`, which draws as the first repeat does."""
    (row,) = models.run(
        engine.target,
        engine.draft,
        [prompt.token_ids],
        how["gamma"],
        sampling=how["sampling"],
        max_new=how["max_new"],
        eos=ENDS[how["pair"]],
        seed=how["seed"],
        names=[prompt.prompt_id],
    )
    return ("ok", row.row.finish, tuple(row.row.output), *told(row))


@FEW
@given(how=asked())
def test_generate_is_the_loop_row_by_row(engines: list[TorchEngine], how: dict[str, Any]) -> None:
    check_generate(engines, how)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=200)
@given(how=asked())
def test_generate_is_the_loop_row_by_row_often(
    engines: list[TorchEngine], how: dict[str, Any]
) -> None:
    check_generate(engines, how)


def test_another_repeat_is_another_draw(engines: list[TorchEngine]) -> None:
    """The repeat keys the draws: eight of them give eight texts on a law that is nearly flat."""
    how = {"max_new": 9, "seed": 0, "gamma": 3, "sampling": Sampling(5.0)}
    prompt = [Prompt("p", "", "", (1, 2))]
    texts = {generated(engines[0], {**how, "repeat": r}, prompt)[0].token_ids for r in range(8)}
    assert len(texts) == 8
