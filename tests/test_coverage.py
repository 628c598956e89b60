"""Jackknife intervals on simulated prompts: a small version of benchmarks/coverage.py."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.coverage import ENDS, coverage, sample, truth
from specbench.estimators import stats

REPETITIONS = 300


@pytest.mark.parametrize("end", ENDS)
def test_coverage_at_15_prompts(end: str) -> None:
    """Standard error .013 at .95; at M − 1 degrees texts of unequal length cover some .03 less."""
    found = coverage(end, 15, REPETITIONS, seed=3, true=truth(end, seed=3, rows=40_000))
    for own, plain in found.values():
        assert own >= 0.905
        assert plain <= own


def test_ends_are_what_they_say() -> None:
    rng = np.random.default_rng(0)
    whole, limited, free = (sample(end, rng, 500) for end in ENDS)
    assert not whole.sums().censored.any()
    assert np.all(whole.sums().cycles == 40)
    assert 0 < limited.sums().censored.sum() < free.sums().censored.sum()
    assert free.sums().censored.max() == 1
    plain = (whole.kept + 1).sum() / whole.kept.size
    assert float(stats.tau(whole.sums().total())[0]) == pytest.approx(plain)
