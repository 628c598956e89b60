"""Rows that leave a batch: who moves where, and what of the cache moves with them."""

from __future__ import annotations

import doctest

import torch
from hypothesis import given
from hypothesis import strategies as st

from specbench.engines import loop
from specbench.engines.loop import closed_up
from specbench.models.kvcache import SlabCache

LAYERS, HEADS, SIZE, CAPACITY = 2, 3, 4, 8


def test_the_example_in_the_docstring_is_right() -> None:
    assert doctest.testmod(loop).failed == 0


@given(st.lists(st.booleans(), max_size=40))
def test_all_that_stay_are_there_once_and_as_few_as_can_be_are_moved(stays: list[bool]) -> None:
    found = closed_up(stays)
    there = [row for row, stay in enumerate(stays) if stay]
    assert sorted(found) == there
    # A row beyond the new end has to move; no other does.
    moved = {row for place, row in enumerate(found) if place != row}
    assert moved == {row for row in there if row >= len(there)}


def filled(rows: int, seen: int) -> SlabCache:
    """A cache after one forward over `seen` tokens of each row."""
    cache = SlabCache(LAYERS, rows, CAPACITY)
    slots = torch.arange(rows)[:, None] * CAPACITY + torch.arange(seen)
    cache.set_plan(slots.flatten(), seen, rows)
    for layer in cache.slabs:
        layer.update(torch.randn(rows, HEADS, seen, SIZE), torch.randn(rows, HEADS, seen, SIZE))
    return cache


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True), st.integers(1, CAPACITY))
def test_kept_rows_hold_what_they_held_in_any_order(rows: list[int], seen: int) -> None:
    cache = filled(6, seen)
    before = [(s.keys.clone(), s.values.clone()) for s in cache.slabs]
    addresses = [s.keys.data_ptr() for s in cache.slabs]
    cache.keep_rows(rows)
    for slab, (keys, values) in zip(cache.slabs, before, strict=True):
        assert torch.equal(slab.keys[: len(rows)], keys[rows])
        assert torch.equal(slab.values[: len(rows)], values[rows])
    assert addresses == [s.keys.data_ptr() for s in cache.slabs]


def test_slots_that_were_written_earlier_move_too() -> None:
    """A later plan may see less, as a captured step's own plan does not say what was written."""
    cache = filled(3, 6)
    held = cache.slabs[0].keys.clone()
    cache.set_plan(torch.tensor([0, CAPACITY, 2 * CAPACITY]), 1, 3)
    cache.keep_rows([2, 1])
    assert torch.equal(cache.slabs[0].keys[0], held[2])
