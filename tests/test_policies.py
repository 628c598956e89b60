"""Simulated draft lengths against runs drawn one by one, brute force and bounds."""

from __future__ import annotations

import doctest
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.estimators import policies
from specbench.estimators.policies import (
    Outcome,
    all_policies,
    best_fixed,
    confidence_stop,
    fixed,
    gain,
    hindsight,
    schedule,
)
from specbench.estimators.replay import cycles_by_text, tau_replay
from specbench.estimators.scored_text import Texts, pack
from specbench.estimators.sums import Floats

TIMES = 1.0 + 0.12 * np.arange(9)
TEXT = [0.9, 0.8, 0.2, 1.0, 0.6, 0.95, 0.0, 0.7, 0.99, 0.5, 0.9, 0.9]
SURE = [0.8, 0.9, 0.3, 0.9, 0.45, 0.9, 0.2, 0.7, 0.9, 0.5, 0.4, 0.9]
Chooser = Callable[[int, int, bool], int]
"""Start, drafts of the cycle before, whether it kept all: drafts of this one."""


def drawn(keep: list[float], choose: Chooser, first: int, runs: int = 4000) -> Floats:
    """Mean cycles by drafts over runs drawn flag by flag; choose is not asked before the first."""
    rng, longest = np.random.default_rng(0), 16
    count = np.zeros(longest + 1)
    for _ in range(runs):
        flags = rng.random(len(keep)) < keep
        t, drafts = 0, first
        while t < len(keep):
            count[drafts] += 1
            ahead = flags[t : t + drafts]
            kept = int(np.argmin(ahead)) if not ahead.all() else drafts
            t += kept + 1
            drafts = choose(t, drafts, kept == drafts)
    return count / runs


def close(found: Outcome, expected: Floats) -> None:
    size = found.by_length.shape[1]
    assert not expected[size:].any()
    np.testing.assert_allclose(found.by_length[0], expected[:size], atol=0.04)


def test_fixed_is_the_replay() -> None:
    texts = pack([TEXT, SURE])
    found = fixed(texts, 3)
    assert found.cycles.tolist() == cycles_by_text(texts, [3])[:, 0].tolist()
    assert found.drafts == pytest.approx(3 * found.cycles)
    assert found.tau == pytest.approx(tau_replay(texts, 3))


def test_schedule_against_runs_drawn_one_by_one() -> None:
    def choose(_: int, drafts: int, full: bool) -> int:
        return min(drafts + 2, 6) if full else max(drafts - 1, 1)

    close(schedule(pack([TEXT]), start=3, longest=6), drawn(TEXT, choose, 3))


@pytest.mark.parametrize("threshold", [0.35, 0.5, 0.85])
def test_confidence_against_runs_drawn_one_by_one(threshold: float) -> None:
    def choose(t: int, _drafts: int = 0, _full: bool = False) -> int:
        low = [i for i, sure in enumerate(SURE[t : t + 5]) if sure < threshold]
        return low[0] + 1 if low else 5

    found = confidence_stop(pack([TEXT]), pack([SURE]), threshold, 5)
    close(found, drawn(TEXT, choose, choose(0)))


def test_confidence_at_its_ends_is_a_fixed_gamma() -> None:
    texts, sure = pack([TEXT, TEXT[:5]]), pack([SURE, SURE[:5]])
    never, always = (confidence_stop(texts, sure, at, 4) for at in (0.0, 1.1))
    np.testing.assert_allclose(never.by_length, fixed(texts, 4).by_length)
    np.testing.assert_allclose(always.by_length[:, 1], fixed(texts, 1).cycles)
    assert not always.by_length[:, 2:].any()


def test_a_law_by_start_gives_the_same() -> None:
    texts, sure = pack([TEXT]), pack([SURE])
    wide = Texts(texts.from_start(6), texts.lengths)
    sure_wide = Texts(sure.from_start(6), sure.lengths)
    stop = confidence_stop(wide, sure_wide, 0.5, 6)
    np.testing.assert_allclose(stop.by_length, confidence_stop(texts, sure, 0.5, 6).by_length)
    other = schedule(texts, 2, 6)
    np.testing.assert_allclose(schedule(wide, 2, 6).by_length, other.by_length)


def cheapest(flags: tuple[int, ...], times: Floats) -> float:
    """Least time over every choice of a draft length at every cycle."""
    if not flags:
        return 0.0
    options = []
    for drafts, time in enumerate(times):
        ahead = flags[:drafts]
        kept = ahead.index(0) if 0 in ahead else drafts
        options.append(time + cheapest(flags[kept + 1 :], times))
    return float(min(options))


@pytest.mark.parametrize("times", [TIMES[:4], np.array([1.0, 1.9, 2.1, 2.2]), np.array([2.0, 1.0])])
def test_hindsight_is_the_best_of_all_choices(times: Floats) -> None:
    for flags in itertools.product((0, 1), repeat=6):
        found = hindsight(pack([flags]), times)
        assert found.seconds(times)[0] == pytest.approx(cheapest(flags, times))


def test_hindsight_in_expectation() -> None:
    """Over uncertain flags it is the mean over all of them."""
    keep = np.array([0.9, 0.5, 0.8, 0.3, 0.6])
    expected = sum(
        np.prod(np.where(flags, keep, 1 - keep)) * cheapest(flags, TIMES[:4])
        for flags in itertools.product((0, 1), repeat=5)
    )
    assert hindsight(pack([keep]), TIMES[:4]).seconds(TIMES)[0] == pytest.approx(expected)


probability = st.sampled_from([0.0, 0.3, 0.7, 0.95, 1.0])


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(probability, max_size=15), min_size=1, max_size=3),
    st.lists(st.floats(0.5, 3.0), min_size=2, max_size=7),
)
def test_nothing_beats_hindsight(texts: list[list[float]], times: list[float]) -> None:
    packed = pack(texts)
    best, *others, bound = all_policies(packed, times, confidence=packed, start=2)
    for one in (best, *others):
        assert np.all(bound.seconds(times) <= one.seconds(times) + 1e-9)
        np.testing.assert_array_equal(one.tokens, packed.lengths)


def test_best_fixed_is_the_least_over_all() -> None:
    texts = pack([TEXT, SURE])
    seconds = [fixed(texts, g).seconds(TIMES).sum() for g in range(9)]
    assert best_fixed(texts, TIMES).seconds(TIMES).sum() == pytest.approx(min(seconds))
    dear = np.array([1.0, 9.0, 9.0])
    assert best_fixed(texts, dear).policy == "fixed γ 0"


def test_gain_is_paired() -> None:
    rng = np.random.default_rng(2)
    texts = pack([np.clip(rng.normal(0.7, 0.3, 60), 0, 1) for _ in range(12)])
    best, bound = best_fixed(texts, TIMES), hindsight(texts, TIMES)
    found = gain(bound, best, TIMES)
    assert found.value == pytest.approx(best.seconds(TIMES).sum() / bound.seconds(TIMES).sum())
    assert found.low is not None
    assert found.low > 1
    assert gain(best, best, TIMES).low == pytest.approx(1.0)
    assert gain(bound, best, TIMES, clusters=[0] * 6 + [1] * 6).clusters == 2


def test_lengths_without_a_time_are_refused_and_not_used() -> None:
    times = np.array([1.0, np.nan, 1.2])
    texts = pack([TEXT])
    with pytest.raises(ValueError, match="at 1 drafts, which schedule from 2"):
        schedule(texts, 2, 2).seconds(times)
    assert hindsight(texts, times).by_length[0, 1] == 0
    assert best_fixed(texts, times).policy != "fixed γ 1"
    with pytest.raises(ValueError, match="at 4 drafts"):
        fixed(texts, 4).seconds([1.0])


@pytest.mark.parametrize("texts", [pack([]), pack([[]]), pack([[1.0]]), pack([[0.0] * 4, []])])
def test_extremes(texts: Texts) -> None:
    for one in all_policies(texts, TIMES, confidence=texts):
        assert np.all(np.isfinite(one.by_length))
        assert one.tau is None or one.tau >= 1
        assert one.cycles.shape == texts.lengths.shape


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: confidence_stop(t, t, 0.5, 0), "at least 1"),
        (lambda t: confidence_stop(t, pack([[1.0]]), 0.5, 2), "unlike texts"),
        (lambda t: schedule(t, 9, 8), "from 1 to 8 drafts, not 9"),
        (lambda t: hindsight(t, []), "0 or more"),
        (lambda t: hindsight(Texts(t.from_start(2), t.lengths), TIMES), "by context only"),
        (lambda t: best_fixed(t, [np.nan]), "0 or more"),
    ],
)
def test_unusable_input_is_refused(call: Callable[[Texts], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call(pack([TEXT]))


def test_examples() -> None:
    found = doctest.testmod(policies)
    assert found.failed == 0
    assert found.attempted
