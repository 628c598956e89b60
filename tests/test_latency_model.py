"""The latency model: known coefficients and a planted crossing are found, held-out points met."""

from __future__ import annotations

import numpy as np
import pytest

from specbench.closed_form import theory
from specbench.latency.latency_model import LatencyModel, Steps, fit, fit_cycles
from specbench.latency.speed_map import Taus, constant, crossing, inflection_context, surface
from specbench.latency.step_forms import DRAFT, VERIFY

BATCHES, CONTEXTS, GAMMAS = (1, 4, 16, 64), (128, 512, 2048, 8192), (0, 1, 3, 7)


def grid(*axes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(a, float).ravel() for a in np.meshgrid(*axes, indexing="ij"))


def hidden(b, s, g, *, knee=100.0, dense=8e-6):  # type: ignore[no-untyped-def]
    """A target: 5 ms of weights, products that count beyond 100 tokens, 2 ns a visible token."""
    n = g + 1
    return (
        5e-3 + 1e-5 * b * n + dense * np.maximum(b * n - knee, 0) + 2e-9 * b * s + 1e-10 * b * s * n
    )


def drafted(b, s, g):  # type: ignore[no-untyped-def]
    return 1e-4 + g * (5e-4 + 2e-6 * b + 2e-10 * b * s)


def model(noise: float = 0.0, seed: int = 0, **target: float) -> LatencyModel:
    b, s, g = grid(BATCHES, CONTEXTS, GAMMAS)
    rng = np.random.default_rng(seed)

    def noisy(x: np.ndarray) -> np.ndarray:
        return np.asarray(x * np.exp(noise * rng.standard_normal(len(x))))

    phases = {
        "verify": noisy(hidden(b, s, g, **target)),
        "draft": noisy(drafted(b, s, g)),
        "other": noisy(2e-4 + 1e-6 * b),
    }
    return fit_cycles(b, s, g, phases)


def test_known_coefficients_come_back() -> None:
    b, s, g = grid(BATCHES, CONTEXTS, GAMMAS)
    plain = fit(VERIFY, Steps(b, s, g, hidden(b, s, g, dense=0.0)))
    assert plain.seconds == pytest.approx([5e-3, 1e-5, 2e-9, 1e-10], rel=1e-6)
    assert plain.knee is None
    assert plain.worst < 1e-9


def test_a_knee_is_found_where_it_lies() -> None:
    b, s, g = grid((1, 2, 4, 8, 16, 32, 64), CONTEXTS, GAMMAS)
    found = fit(VERIFY, Steps(b, s, g, hidden(b, s, g, knee=64.0)))
    assert not found.early
    assert found.knee == pytest.approx(64.0)
    assert found.seconds == pytest.approx([5e-3, 1e-5, 2e-9, 1e-10, 8e-6], rel=1e-6)


def test_small_products_that_cost_more_a_token_are_found() -> None:
    """The first 12 tokens cost 50 µs more each: the term is paid up to the knee, and no further."""
    b, s, g = grid((1, 2, 4, 8, 16, 32, 64), CONTEXTS, GAMMAS)
    extra = 5e-5 * np.minimum(b * (g + 1), 12.0)
    found = fit(VERIFY, Steps(b, s, g, hidden(b, s, g, dense=0.0) + extra))
    assert found.early
    assert found.knee == pytest.approx(12.0)
    assert found.seconds == pytest.approx([5e-3, 1e-5, 2e-9, 1e-10, 5e-5], rel=1e-6)
    assert found.predict(64, 128, 15) == pytest.approx(
        hidden(64.0, 128.0, 15.0, dense=0.0) + 6e-4, rel=1e-6
    )


def test_noise_alone_makes_no_knee() -> None:
    b, s, g = grid(BATCHES, CONTEXTS, GAMMAS)
    rng = np.random.default_rng(1)
    made = 0
    for _ in range(50):
        times = hidden(b, s, g, dense=0.0) * np.exp(0.03 * rng.standard_normal(len(b)))
        made += fit(VERIFY, Steps(b, s, g, times)).knee is not None
    # A knee has to beat 2 ln 64 + 2: few of 50 do by chance; 9 would have p < 1e-4 at 5 % each.
    assert made < 9


def test_held_out_points_are_met_within_5_percent_under_3_percent_noise() -> None:
    b, s, g = grid((2, 8, 32), (256, 1024, 4096), (1, 2, 4, 6))
    for seed in range(5):
        found = model(0.03, seed)
        off = found.cycle(b, s, g) / (hidden(b, s, g) + drafted(b, s, g) + 2e-4 + 1e-6 * b) - 1
        assert np.median(np.abs(off)) < 0.02
        assert np.max(np.abs(off)) < 0.08
        for gamma in (2, 4):
            tau = theory.tau(0.8, gamma)
            got = found.speedup(b, s, gamma, tau)
            real = tau * (hidden(b, s, 0) + 2e-4 + 1e-6 * b)
            real = real / (hidden(b, s, gamma) + drafted(b, s, gamma) + 2e-4 + 1e-6 * b)
            assert np.max(np.abs(got / real - 1)) < 0.05


def test_all_terms_are_non_negative_whatever_the_times() -> None:
    rng = np.random.default_rng(2)
    b, s, g = grid(BATCHES, CONTEXTS, (1, 3))
    for form in (VERIFY, DRAFT):
        found = fit(form, Steps(b, s, g, rng.exponential(size=len(b))))
        assert min(found.seconds) >= 0


def test_too_few_points_are_refused() -> None:
    three = np.ones(3)
    with pytest.raises(ValueError, match="3 step times are too few for 4 terms"):
        fit(VERIFY, Steps(three, three, three, three))


def test_medians_join_what_is_measured_at_one_place() -> None:
    steps = Steps(
        np.array([1.0, 1, 1, 2]),
        np.array([100.0, 101, 99, 100]),
        np.ones(4),
        np.array([1.0, 9, 2, 5]),
    )
    found = steps.medians()
    assert sorted(zip(found.batch, found.seconds, strict=True)) == [(1, 2), (2, 5)]


def test_what_was_not_measured_is_named() -> None:
    found = model().measured
    assert found.beyond(16, 1000, 3) == ""
    assert found.beyond(128, 1000, 3) == ("batch 128 (1 to 64 measured)")
    assert found.beyond(64, 50, 9) == (
        "context 50 (128 to 8192 measured), γ 9 (0 to 7 measured), "
        "batch × (γ + 1) 640 (1 to 512 measured)"
    )


# Crossings


def test_a_planted_crossing_is_found() -> None:
    """Dear products at a large batch: drafting pays only once the cache outweighs them."""
    found = model(dense=3e-4)
    taus = {3: theory.tau(0.7, 3)}
    same = constant(taus)

    def gain(context: float) -> float:
        plain = hidden(64.0, context, 0, dense=3e-4) + 2e-4 + 64e-6
        cycle = hidden(64.0, context, 3, dense=3e-4) + drafted(64.0, context, 3) + 2e-4 + 64e-6
        return float(taus[3] * plain / cycle - 1)

    places = np.geomspace(128, 1e6, 200_000)
    known = next(float(p) for p in places if gain(float(p)) > 0)
    assert 1000 < known < 1e6
    got = crossing(found, same, 64, 128, 1e6)
    assert (got.kind, got.context) == ("from", pytest.approx(known, rel=0.01))
    assert crossing(found, same, 1, 128, 8192).kind == "always"
    assert crossing(found, same, 64, 128, known / 2).kind == "never"


def test_the_best_gamma_is_that_of_every_gamma_tried_by_hand() -> None:
    found, taus = model(), {g: theory.tau(0.8, g) for g in range(1, 8)}
    seen = surface(found, constant(taus), BATCHES, CONTEXTS)
    for i, b in enumerate(BATCHES):
        for j, s in enumerate(CONTEXTS):
            plain = hidden(b, s, 0) + 2e-4 + 1e-6 * b
            own = {
                g: tau * plain / (hidden(b, s, g) + drafted(b, s, g) + 2e-4 + 1e-6 * b)
                for g, tau in taus.items()
            }
            best = max(own, key=lambda g: own[g])
            assert seen.best[i, j] == pytest.approx(max(1.0, own[best]), rel=0.02)
            chosen = int(seen.best_gamma[i, j])
            assert own.get(chosen, 1.0) == pytest.approx(max(1.0, own[best]), rel=0.02)


def test_where_plain_decoding_is_fastest_no_gamma_is_best() -> None:
    seen = surface(model(), constant({4: 1.0}), [1.0], [128.0])
    assert seen.best_gamma.tolist() == [[0.0]]
    assert seen.best.tolist() == [[1.0]]
    assert seen.drafting[0, 0] < 1


H100 = {"flops": 0.6 * 989e12, "bytes": 0.8 * 3.35e12}


@pytest.mark.parametrize(
    ("params", "kv_bytes", "draft_params", "draft_kv_bytes", "alpha", "known"),
    [
        # theory.md §8: Llama-3.1-8B with itself, Llama-2-7B with itself, 8B with a 1B draft.
        (8.03e9, 131_072, 8.03e9, 131_072, 0.85, 1668),
        (6.74e9, 524_288, 6.74e9, 524_288, 0.85, 905),
        (8.03e9, 131_072, 1.24e9, 32_768, 0.75, 773),
    ],
)
def test_the_inflection_context_is_that_of_the_literature(
    params: float, kv_bytes: int, draft_params: float, draft_kv_bytes: int, alpha: float, known: int
) -> None:
    def per_token(p: float) -> float:
        return 2 * p / H100["flops"]

    draft = per_token(draft_params) + 512 * draft_kv_bytes / H100["bytes"]
    found = inflection_context(
        3, theory.tau(alpha, 3), per_token(params), kv_bytes / H100["bytes"], draft
    )
    assert found == pytest.approx(known, rel=0.02)


def test_the_inflection_context_is_the_crossing_of_a_very_large_batch() -> None:
    b, s, g = grid((1, 64, 4096, 262_144), CONTEXTS, GAMMAS)
    verify = 5e-3 + 1e-5 * b * (g + 1) + 2e-8 * b * s
    draft = g * (5e-4 + 1e-6 * b + 2e-10 * b * s)
    found = fit_cycles(b, s, g, {"verify": verify, "draft": draft + 1e-9, "other": 0 * b + 1e-9})
    tau = theory.tau(0.7, 3)
    got = crossing(found, constant({3: tau}), 1e8, 1, 1e6)
    known = inflection_context(3, tau, 1e-5, 2e-8, 1e-6, 2e-10)
    assert got.kind == "from"
    assert got.context == pytest.approx(known, rel=1e-3)


def test_a_draft_whose_cache_costs_too_much_never_pays() -> None:
    assert inflection_context(3, 2.0, 1.0, 1.0, 0.1, 0.5) is None


def test_tokens_per_cycle_may_change_with_context() -> None:
    taus = Taus((1, 2), np.array([10.0, 1000.0]), np.array([[1.8, 2.4], [1.2, 1.3]]))
    assert taus.at(2, [1, 10, 100, 1000, 1e6]).tolist() == pytest.approx([2.4, 2.4, 1.85, 1.3, 1.3])
    seen = surface(model(), taus, [1.0], [128.0, 512.0])
    plain = model().speedup(1.0, 128.0, 1, float(taus.at(1, 128)))
    assert seen.speedup[0, 0, 0] == pytest.approx(float(plain))
