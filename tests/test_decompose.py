"""The parts of the gap and of the speedup: exact sums, enumerated orders, known causes."""

from __future__ import annotations

import doctest
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulated import Law, overlaps
from specbench.closed_form import theory
from specbench.estimators import decompose, stats
from specbench.estimators.decompose import PARTS, gap_parts, identity_gap, shuffled_cycles
from specbench.estimators.replay import cycles_by_text, tau_replay
from specbench.estimators.scored_text import Texts, pack
from specbench.estimators.stats import from_accepted
from specbench.latency import latency_parts
from specbench.latency.latency_parts import CycleCosts, levers, speedup_parts

probability = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])
text_sets = st.lists(st.lists(probability, max_size=12), min_size=1, max_size=5)


def value(found: decompose.Interval) -> float:
    assert found.value is not None
    return found.value


@pytest.mark.parametrize("gamma", [0, 1, 2, 4, 8])
def test_mean_over_all_orders_is_that_of_enumeration(gamma: int) -> None:
    texts = [[0.9, 0.1, 1.0, 0.3, 0.75, 0.5], [0.0, 1.0, 1.0], [0.4], []]
    expected = [
        np.mean([cycles_by_text(pack([order]), [gamma]) for order in itertools.permutations(text)])
        for text in texts
    ]
    assert shuffled_cycles(pack(texts), gamma) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(text_sets, st.integers(0, 6), st.integers(1, 9))
def test_parts_add_up_to_the_gap(texts: list[list[float]], gamma: int, cycles: int) -> None:
    found = gap_parts(pack(texts), gamma, [cycles] * len(texts))
    tokens = sum(map(len, texts))
    if not tokens:
        assert all(part.value is None for part in found.parts.values())
        return
    whole = sum(value(part) for part in found.parts.values())
    assert whole == pytest.approx(value(found.measured) - value(found.closed_form), abs=1e-12)
    assert value(found.measured) == pytest.approx(tokens / (cycles * len(texts)))
    assert value(found.replayed) == pytest.approx(tau_replay(pack(texts), gamma))
    alpha = sum(map(sum, texts)) / tokens
    assert value(found.closed_form) == pytest.approx(theory.tau(alpha, gamma))


def test_long_texts_and_large_gammas_stay_exact() -> None:
    """Of equal values no order is special, so the mean over orders is the plain replay."""
    texts = pack([np.full(700, 0.97), np.full(512, 0.4)])
    for gamma in (1, 7, 64, 2000):
        plain = cycles_by_text(texts, [gamma])[:, 0]
        np.testing.assert_allclose(shuffled_cycles(texts, gamma), plain, rtol=1e-10)


def scored(law: Law, seed: int, prompts: int = 60, tokens: int = 128) -> Texts:
    """Texts whose keep probability at each token is the overlap itself."""
    logit = overlaps(law, np.random.default_rng(seed), prompts, tokens)
    return Texts(1 / (1 + np.exp(-logit)), np.full(prompts, tokens))


def parts_of(law: Law, seed: int = 0) -> decompose.GapParts:
    texts = scored(law, seed)
    return gap_parts(texts, 5, cycles_by_text(texts, [5])[:, 0])


def test_independent_accepts_leave_only_the_ends() -> None:
    found = parts_of(Law())
    assert {name for name, part in found.parts.items() if abs(value(part)) > 1e-9} == {"truncation"}
    expected = theory.tau_clipped(128, value(found.alpha_text), 5) - value(found.closed_form)
    assert value(found.parts["truncation"]) == pytest.approx(expected, rel=0.01)


def test_prompts_that_differ() -> None:
    found = parts_of(Law(prompt_sd=0.8))
    between = found.parts["between"]
    assert value(between) < -0.03
    assert between.high is not None
    assert between.high < 0
    assert abs(value(found.parts["order"])) < 1e-9
    assert found.main_cause == "prompts differ"


def test_runs_within_a_prompt() -> None:
    found = parts_of(Law(context_sd=1.5, serial=0.9))
    assert value(found.parts["order"]) < -0.1
    assert found.main_cause == "kept drafts come in runs within a prompt"
    loose = parts_of(Law(context_sd=1.5))
    order = loose.parts["order"]
    assert order.low is not None
    assert order.high is not None
    assert order.low < 0 < order.high
    assert abs(value(loose.parts["remainder"])) < 0.02


def test_accept_draws_are_the_noise_and_cover_zero() -> None:
    texts = scored(Law(context_sd=1.0, serial=0.8), 3)
    rng = np.random.default_rng(4)
    flags = Texts((rng.random(texts.keep.shape) < texts.keep).astype(float), texts.lengths)
    found = gap_parts(texts, 5, cycles_by_text(flags, [5])[:, 0])
    noise = found.parts["noise"]
    assert value(noise) == pytest.approx(value(found.measured) - value(found.replayed))
    assert noise.low is not None
    assert noise.high is not None
    assert noise.low < 0 < noise.high


def test_jackknife_of_a_part_is_that_of_the_texts_left_out() -> None:
    texts = scored(Law(prompt_sd=0.5, context_sd=1.0), 5, prompts=5, tokens=20)
    cycles = cycles_by_text(texts, [3])[:, 0] + 0.5
    found = gap_parts(texts, 3, cycles)

    def without(m: int) -> decompose.GapParts:
        rest = np.arange(5) != m
        return gap_parts(Texts(texts.keep[rest], texts.lengths[rest]), 3, cycles[rest])

    for name in PARTS:
        others = np.array([value(without(m).parts[name]) for m in range(5)])
        expected = math.sqrt(4 / 5 * float(((others - others.mean()) ** 2).sum()))
        assert found.parts[name].se == pytest.approx(expected, abs=1e-12)


def test_overlap_gives_alpha_and_prompt_means() -> None:
    keep, overlap = pack([[1.0, 0.0], [1.0, 1.0]]), pack([[0.5, 0.5], [0.9, 0.9]])
    found = gap_parts(keep, 2, [2, 1], overlap=overlap)
    assert value(found.alpha_text) == pytest.approx(0.7)
    assert value(found.replayed) == pytest.approx(2.0)


def test_clusters_are_left_out_whole() -> None:
    texts = scored(Law(prompt_sd=0.5), 6, prompts=4, tokens=10)
    found = gap_parts(texts, 2, [5, 5, 6, 6], clusters=["a", "a", "b", "b"])
    assert found.measured.clusters == 2
    alone = gap_parts(texts, 2, [5, 5, 6, 6], clusters=["a"] * 4)
    assert alone.measured.value == found.measured.value
    assert alone.measured.low is None
    assert alone.main_cause == ""


@pytest.mark.parametrize(
    ("texts", "cycles", "said"),
    [
        (pack([np.ones((3, 4))]), [1], "by context only"),
        (pack([[1.0]]), [1, 2], "1 texts but cycles of 2"),
        (pack([[1.0]]), [np.nan], "0 or more"),
    ],
)
def test_unusable_input_is_refused(texts: Texts, cycles: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gap_parts(texts, 2, cycles)
    with pytest.raises(ValueError, match="unlike texts"):
        gap_parts(pack([[1.0]]), 2, [1], overlap=pack([[1.0, 1.0]]))


@pytest.mark.parametrize("texts", [[], [[]], [[1.0] * 9], [[0.0] * 9], [[1.0], [0.0]], [[1.0]] * 3])
def test_extremes_warn_of_nothing(texts: list[list[float]]) -> None:
    cycles = [float(len(text)) for text in texts]
    found = gap_parts(pack(texts), 3, cycles)
    for part in found.parts.values():
        assert part.value is None or math.isfinite(part.value)


@given(st.integers(1, 6).flatmap(lambda g: st.tuples(st.lists(st.integers(0, g)), st.just(g))))
def test_identity_holds_for_every_trace(trace: tuple[list[int], int]) -> None:
    accepted, gamma = trace
    found = identity_gap(from_accepted(accepted, gamma))
    assert (found is None) == (not accepted)


def test_identity_is_not_claimed_where_it_does_not_hold() -> None:
    sums = from_accepted([4, 0, 2], gamma=4)
    zero = np.zeros(3)
    cut = stats.CellSums(**{**vars(sums), "censored": zero + 1})
    assert identity_gap(cut) is None
    chosen = stats.CellSums(**{**vars(sums), "drafted": zero + 3})
    assert identity_gap(chosen) is None
    with pytest.raises(ValueError, match="full accepts"):
        identity_gap(stats.CellSums(**{**vars(sums), "full_accept": zero}))


COSTS = CycleCosts(4, 0.75, 2.9, 2.8, draft=3.1, verify=11.0, other=1.2, step=9.0, plain=9.5)
ratios = st.one_of(st.none(), st.floats(0.01, 5.0))


@given(ratios, ratios)
def test_speedup_parts_add_up(c: float | None, v: float | None) -> None:
    found = speedup_parts(COSTS, c, v)
    promised = theory.speedup(
        0.75, 4, c if c is not None else 3.1 / 36, v if v is not None else 11 / 9
    )
    assert found.promised == pytest.approx(promised)
    whole = math.log(found.measured / found.promised)
    assert found.acceptance + found.cost == pytest.approx(whole, abs=1e-12)
    assert c is not None or found.draft == 0


def test_a_dearer_forward_is_named() -> None:
    found = speedup_parts(COSTS, cost_ratio=3.1 / 36, verify_ratio=1.0)
    assert found.draft == pytest.approx(0, abs=1e-15)
    assert found.verify == pytest.approx(math.log(12.1 / 14.1))
    assert not found.fast_block
    assert speedup_parts(COSTS, verify_ratio=0.8).fast_block


def doubled(name: str, factor: float) -> CycleCosts:
    given_costs = {f: getattr(COSTS, f) for f in COSTS.__dataclass_fields__}
    return CycleCosts(**{**given_costs, name: given_costs[name] * factor})


@pytest.mark.parametrize("name", ["draft", "verify", "other"])
def test_levers_are_what_the_model_gives(name: str) -> None:
    lever = {found.name: found for found in levers(COSTS)}[name]
    assert lever.halved == pytest.approx(doubled(name, 0.5).speedup)
    step = 1e-6
    slope = (doubled(name, 1 + step).latency - COSTS.latency) / (getattr(COSTS, name) * step)
    assert lever.slope == pytest.approx(slope, rel=1e-5)


def test_levers_rank_what_helps_and_name_rejections() -> None:
    found = levers(COSTS)
    assert [lever.halved for lever in found] == sorted((x.halved for x in found), reverse=True)
    by_name = {lever.name: lever for lever in found}
    gain = theory.tau(0.875, 4) / theory.tau(0.75, 4)
    assert by_name["rejections"].halved == pytest.approx(COSTS.speedup * gain)
    assert by_name["verify beyond a step"].halved == pytest.approx(
        COSTS.speedup * COSTS.cycle / (COSTS.cycle - 1.0)
    )
    quick = {lever.name: lever for lever in levers(doubled("step", 2.0))}
    assert quick["verify beyond a step"].halved == pytest.approx(COSTS.speedup)


@pytest.mark.parametrize("wrong", [{"alpha": math.nan}, {"step": 0.0}, {"draft": -1.0}])
def test_unusable_costs_are_refused(wrong: dict[str, float]) -> None:
    given_costs = {f: getattr(COSTS, f) for f in COSTS.__dataclass_fields__}
    with pytest.raises(ValueError, match="0"):
        CycleCosts(**{**given_costs, **wrong})


@pytest.mark.parametrize("module", [decompose, latency_parts])
def test_examples(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.failed == 0
    assert found.attempted


def test_ends_vanish_in_long_texts() -> None:
    found = gap_parts(pack([np.full(4000, 0.8)]), 5, [1])
    assert abs(value(found.parts["truncation"])) < 5e-3
