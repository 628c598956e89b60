"""Shares in whole percent."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from specbench import wording
from specbench.wording import whole_percents


def test_examples_in_docstrings_run() -> None:
    assert doctest.testmod(wording).failed == 0


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6))
def test_shares_add_up_and_none_is_off_by_a_whole_percent(parts: list[float]) -> None:
    found = whole_percents(parts)
    assert sum(found) == 100
    assert all(abs(n - 100 * p / sum(parts)) < 1 + 1e-9 for n, p in zip(found, parts, strict=True))
