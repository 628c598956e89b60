"""What the models of a cell need in memory, against sums by hand."""

from __future__ import annotations

import doctest

import models
import pytest
import torch

from specbench.latency import memory_need as module
from specbench.latency.memory_need import memory_need
from specbench.latency.roofline import Shape
from specbench.measure import memory_check
from specbench.models.shapes import shape_of
from specbench.settings.recipe import Recipe, expand

SHAPE = Shape(1000, 500, 8, 8, 10, held_bytes=1200, vocab_size=50)


def test_the_example_in_the_docstring_is_right() -> None:
    found = doctest.testmod(module)
    assert (found.failed, found.attempted > 0) == (0, True)


def test_a_draft_that_shares_weights_adds_its_cache_alone() -> None:
    draft = Shape(500, 250, 8, 8, 2, held_bytes=0, vocab_size=50)
    alone = memory_need(SHAPE, None, rows=1, tokens=10, gamma=0, greedy=True)
    both = memory_need(SHAPE, draft, rows=1, tokens=10, gamma=0, greedy=True)
    assert alone is not None
    assert both is not None
    assert alone.total == 1200 + 10 * 8 * 10 + 50 * 4
    assert both.total - alone.total == 10 * 8 * 2


def test_a_sampled_cell_holds_laws_of_every_position() -> None:
    found = memory_need(SHAPE, SHAPE, rows=3, tokens=10, gamma=4, greedy=False)
    assert found is not None
    assert found.laws == 3 * 5 * 50 * 4 + 3 * (3 * 5 + 4) * 50 * 8


def test_a_shape_of_an_older_file_tells_nothing() -> None:
    old = Shape(1000, 500, 8, 8, 10)
    assert memory_need(old, None, rows=1, tokens=10, gamma=0, greedy=True) is None


def test_a_model_says_what_it_holds() -> None:
    lm = models.lm(models.build())
    shape = shape_of(lm)
    own = {p.data_ptr(): p.nbytes for p in lm.model.parameters()}
    assert shape is not None
    assert sum(own.values()) <= shape.held_bytes <= sum(own.values()) + 4096
    assert shape.vocab_size == 32
    shared = shape_of(lm, shared=True)
    assert shared is not None
    assert shared.held_bytes == 0


def test_a_sweep_that_needs_more_than_there_is_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loaded:
        target = models.lm(models.build())
        device = torch.device("cpu")

    said: list[str] = []
    blocks = list(expand(Recipe.model_validate({"measure": {"batch_size": [1, 4]}})))
    shapes = {block.draft.label: shape_of(Loaded.target) for block in blocks}
    memory_check.tell_memory(Loaded, shapes, blocks, 100, said.append)
    assert not said
    monkeypatch.setattr(memory_check, "memory_bytes", lambda _: 1000)
    memory_check.tell_memory(Loaded, shapes, blocks, 100, said.append)
    (text,) = said
    assert "at batch 4 and 100 tokens needs" in text
