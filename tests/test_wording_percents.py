"""Shares in whole percent."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from specbench import wording
from specbench.estimators.intervals import Interval
from specbench.wording import bounds, column, percent_bounds, whole_percents


def test_examples_in_docstrings_run() -> None:
    assert doctest.testmod(wording).failed == 0


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6))
def test_shares_add_up_and_none_is_off_by_a_whole_percent(parts: list[float]) -> None:
    found = whole_percents(parts)
    assert sum(found) == 100
    assert all(abs(n - 100 * p / sum(parts)) < 1 + 1e-9 for n, p in zip(found, parts, strict=True))


def test_an_end_a_thousand_times_the_number_is_no_interval() -> None:
    """Two prompts that differ much: Student's t at one degree of freedom is 12.7."""
    assert percent_bounds(Interval(-0.235, -1.0, 1.3e19)) == "[–]"
    assert bounds(Interval(1.5, 0.0, 1501.0)) == "[–]"
    assert bounds(Interval(1.5, 0.0, 1499.0)) == "[0.00, 1499.00]"
    assert bounds(Interval(0.001, 0.0, 1.0)) == "[0.00, 1.00]"
    assert bounds(Interval(5000.0, 4000.0, 6000.0), 0) == "[4000, 6000]"


def test_a_column_leaves_out_an_interval_that_says_nothing() -> None:
    found = column([Interval(0.23, 1e-6, 55130.5), Interval(1.5, 1.25, 1.75)])
    assert found == ["0.23 [–]", "1.50 [1.25, 1.75]"]
