"""What a run measures, read from its files: ends, counts, times, failures, the draft kinds."""

from __future__ import annotations

import math
from pathlib import Path

import models
import pytest
from cli_runs import (
    Row,
    cell,
    cycles,
    generations,
    lines,
    measure,
    refused,
    summary,
    tokens,
    words,
)
from test_cases_pairs import SPREAD, law_of, near

from specbench.errors import UsageError
from specbench.measure.preflight import _check_batches
from specbench.settings.recipe import default_recipe, merge_flags

GREEDY = [19, 7, 15, 22, 28, 13, 20, 10, 28, 10, 28, 13]
"""RND(0) after 1 5 9, of RND(0)."""
P, Q = [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]
MANY = ["--temperature", "1", "--batch-size", "64", "-n", "64"]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RND(0) as `t`, NOISY(0.01) as `d`, IID(P) as `p` and IID(Q) as `q`, and prompts."""
    folder = tmp_path_factory.mktemp("measure")
    models.save(models.rnd(), folder / "t")
    models.save(models.noisy(models.rnd()), folder / "d")
    models.save(models.iid(P), folder / "p")
    models.save(models.iid(Q), folder / "q")
    lines(folder / "one.txt", "w1 w5 w9")
    lines(folder / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w3 w7 w8")
    lines(folder / "many.txt", *["w1 w2"] * 64)
    return folder


def numbers(row: Row, *names: str) -> list[int]:
    """Some counts of a row."""
    return [int(row[f"num_{name}"]) for name in names]


# Ends


@pytest.mark.parametrize(("eos", "length"), [(19, 1), (15, 3), (28, 5), (13, 6)])
def test_an_eos_anywhere_in_a_block_ends_the_text(
    at: Path, tmp_path: Path, eos: int, length: int
) -> None:
    """D06: at index 0, inside, at γ − 1 and as the bonus; γ = 0 ends at the same place."""
    models.save(models.rnd(), tmp_path / "t", generation={"eos_token_id": eos})
    flags = ["--dtype", "float64", "-g", "5", "--max-new-tokens", "20"]
    measure(tmp_path / "o", tmp_path / "t", ["self"], at / "one.txt", *flags)
    assert set(map(tuple, tokens(tmp_path / "o").values())) == {tuple(GREEDY[:length])}
    assert {r["finish_reason"] for r in generations(tmp_path / "o")} == {"eos"}
    (row,) = generations(tmp_path / "o", 5)
    kept = min(length, 5)
    assert numbers(row, "cycles", "tested", "accepted") == [1, kept, kept]
    assert numbers(row, "censored") == [int(length < 5)]


@pytest.mark.parametrize("place", ["generation config", "config"])
def test_all_ids_of_an_eos_list_end_a_text(at: Path, tmp_path: Path, place: str) -> None:
    """D07: [3, 15] in either file, with a tokenizer that has no EOS: stops at 15."""
    ids = {"eos_token_id": [3, 15]}
    model = models.build(**({} if place == "generation config" else ids)).double()
    generation = ids if place == "generation config" else None
    models.save(model, tmp_path / "t", generation=generation)
    flags = ["--dtype", "float64", "-g", "5", "--max-new-tokens", "20"]
    measure(tmp_path / "o", tmp_path / "t", ["self"], at / "one.txt", *flags)
    assert list(tokens(tmp_path / "o").values()) == [GREEDY[:3]] * 2


def test_ignore_eos_goes_on(at: Path, tmp_path: Path) -> None:
    """D34: with --ignore-eos the same model gives all of its tokens, and the CSV says so."""
    models.save(models.rnd(), tmp_path / "t", generation={"eos_token_id": 15})
    flags = ["--dtype", "float64", "--max-new-tokens", "12", "--ignore-eos"]
    measure(tmp_path / "o", tmp_path / "t", ["self"], at / "one.txt", *flags)
    assert list(tokens(tmp_path / "o").values()) == [GREEDY] * 2
    assert {r["eos_policy"] for r in summary(tmp_path / "o")} == {"ignore"}


def test_an_eos_that_only_the_draft_wants_is_rejected(at: Path, tmp_path: Path) -> None:
    """D08: 20 tokens, α = 0, τ = 1; drafting goes on behind a drafted EOS, so 4 are counted."""
    models.save(models.iid([0.6, 0.4, 0.0]), tmp_path / "t", generation={"eos_token_id": 2})
    models.save(models.iid([0.0, 0.0, 1.0]), tmp_path / "d")
    flags = ["--temperature", "1", "-g", "4", "--max-new-tokens", "20"]
    measure(tmp_path / "o", tmp_path / "t", [tmp_path / "d"], at / "one.txt", *flags)
    row = cell(tmp_path / "o", 4)
    assert numbers(row, "output_tokens", "cycles", "drafted", "tested") == [20, 20, 80, 20]
    assert (float(row["alpha"]), float(row["tau"])) == (0, 1)


def test_never_more_than_the_budget(at: Path, tmp_path: Path) -> None:
    """D09: SELF, γ = 4, max_new 1 to 7: exactly so many tokens, a prefix of the longer run."""
    for count in (1, 2, 4, 5, 6, 7):
        flags = ["--dtype", "float64", "-g", "4", "--max-new-tokens", count]
        out = tmp_path / str(count)
        measure(out, at / "t", ["self"], at / "one.txt", *flags)
        assert list(tokens(out).values()) == [GREEDY[:count]] * 2
        assert {r["finish_reason"] for r in generations(out)} == {"length"}


def test_a_last_cycle_is_decided_in_full_and_delivered_in_part(at: Path, tmp_path: Path) -> None:
    """D10: SELF, γ = 5, max_new 8: drafted 10, emitted 12, delivered 8; τ = 6 and 4."""
    flags = ["--dtype", "float64", "-g", "5", "--max-new-tokens", "8"]
    measure(tmp_path / "o", at / "t", ["self"], at / "one.txt", *flags)
    row = cell(tmp_path / "o", 5)
    assert numbers(row, "output_tokens", "cycles", "drafted", "accepted") == [8, 2, 10, 10]
    assert numbers(row, "censored", "full_accept") == [0, 2]
    assert (float(row["tau"]), float(row["tau_delivered"])) == (6, 4)
    found = cycles(tmp_path / "o", 5)
    assert [len(c["emitted_ids"]) for c in found] == [6, 6]
    assert [c["num_delivered"] for c in found] == [6, 2]


def test_nothing_behind_an_eos_counts_in_a_batch(at: Path, tmp_path: Path) -> None:
    """D25: one row ends after 2 tokens, one after 30: 32 in all, 2 and 30 by prompt."""
    models.save(models.rnd(), tmp_path / "t", generation={"eos_token_id": 7})
    free = next(i for i in range(1, 31) if 7 not in models.plain(models.rnd(), [i, 2], 30))
    prompts = lines(tmp_path / "p.txt", "w1 w5 w9", f"w{free} w2")
    flags = ["--dtype", "float64", "-g", "3", "--batch-size", "2", "--max-new-tokens", "30"]
    measure(tmp_path / "o", tmp_path / "t", ["self"], prompts, *flags)
    for gamma in (0, 3):
        rows = generations(tmp_path / "o", gamma)
        assert [r["num_output_tokens"] for r in rows] == ["2", "30"]
        assert cell(tmp_path / "o", gamma)["num_output_tokens"] == "32"
        wall = sum(float(r["share_s"]) for r in rows)
        rate = float(cell(tmp_path / "o", gamma)["tokens_per_second"])
        assert rate == pytest.approx(32 / wall)


# Counts and laws


def test_alpha_and_tau_are_those_of_the_closed_form(at: Path, tmp_path: Path) -> None:
    """D26: IID(P)/IID(Q), γ = 4: α = .6, τ = 2.3056, accepted per drafted .326.

    64 prompts × 100 tokens, seed 0: about 2,800 cycles.
    """
    flags = ["-g", "4", "--max-new-tokens", "100"]
    measure(tmp_path / "o", at / "p", [at / "q"], at / "many.txt", *MANY, *flags)
    row = cell(tmp_path / "o", 4)
    a = 0.6
    assert near(float(row["alpha"]), a, int(row["num_tested"]))
    tau = (1 - a**5) / (1 - a)
    second = sum((n + 1) ** 2 * a**n * (1 - a if n < 4 else 1) for n in range(5))
    spread = math.sqrt((second - tau**2) / int(row["num_cycles"]))
    assert abs(float(row["tau"]) - tau) < SPREAD * spread
    kept = numbers(row, "accepted")[0] / numbers(row, "drafted")[0]
    assert float(row["accepted_per_drafted"]) == pytest.approx(kept)
    assert abs(kept - (tau - 1) / 4) < SPREAD * spread / 4
    found, count = law_of(tmp_path / "o", 4, 3)
    assert all(near(f, w, count) for f, w in zip(found, P, strict=True)), found


def test_both_sides_get_the_temperature(at: Path, tmp_path: Path) -> None:
    """D13: IID(P)/IID(Q) at T = .5: α = .3638, law (.0217, .7826, .1957). 64 × 60 tokens."""
    flags = ["--temperature", "0.5", "--max-new-tokens", "60"]
    measure(tmp_path / "o", at / "p", [at / "q"], at / "many.txt", *MANY, *flags)
    row = cell(tmp_path / "o", 2)
    assert near(float(row["alpha"]), 0.3638, int(row["num_tested"]))
    found, count = law_of(tmp_path / "o", 2, 3)
    law = (0.0217, 0.7826, 0.1957)
    assert all(near(f, w, count) for f, w in zip(found, law, strict=True)), found


def test_ratios_are_ratios_of_columns(at: Path, tmp_path: Path) -> None:
    """D27: both methods count the same tokens at T = 0; each ratio column divides two others."""
    flags = ["--dtype", "float64", "-g", "3", "--max-new-tokens", "20"]
    measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt", *flags)
    base, row = cell(tmp_path / "o", 0), cell(tmp_path / "o", 3)
    assert base["num_output_tokens"] == row["num_output_tokens"] == "60"

    def of(name: str, at_: Row = row) -> float:
        return float(at_[name])

    assert of("baseline_latency_ms") == of("latency_ms", base)
    assert of("speedup") == pytest.approx(of("baseline_latency_ms") / of("latency_ms"))
    assert of("cost_ratio") == pytest.approx(of("t_draft_ms") / (3 * of("t_verify_ms", base)))
    assert of("verify_ratio") == pytest.approx(of("t_verify_ms") / of("t_verify_ms", base))
    models_ms = of("t_draft_ms") + of("t_verify_ms")
    assert of("latency_formula_ms") == pytest.approx(models_ms / of("tau"))
    cycle_ms = models_ms + of("t_other_ms")
    assert of("latency_ms") == pytest.approx(cycle_ms / of("tau_delivered"))
    assert of("speedup_closed_form") == pytest.approx(
        of("tau_closed_form") / (3 * of("cost_ratio") + of("verify_ratio"))
    )


# Times


# Memory


# The kinds `self` and `synthetic`


@pytest.mark.parametrize(("dtype", "flags"), [("float64", "0"), ("float32", "0.01,0.7,1,2")])
def test_self_accepts_everything(at: Path, tmp_path: Path, dtype: str, flags: str) -> None:
    """D02, D11, D14: α is 1 exactly in float64, ≥ .999 sampled in float32; never NaN in a file."""
    prompts = lines(tmp_path / "p.txt", *[f"w{i} w{i + 3} w5" for i in range(1, 17)])
    more = ["-g", "4", "--max-new-tokens", "20", "--batch-size", "16", "--temperature", flags]
    measure(tmp_path / "o", at / "t", ["self"], prompts, *more, "--dtype", dtype)
    for row in summary(tmp_path / "o", gamma=4):
        assert float(row["alpha"]) >= (1 if dtype == "float64" else 0.999)
        assert float(row["tau"]) >= (5 if dtype == "float64" else 4.99)
    for name in ("summary.csv", "generations.csv", "positions.csv", "tokens.jsonl", "run.json"):
        text = (tmp_path / "o" / name).read_text().lower()
        assert not any(word in text for word in (",nan", ",inf", ",-inf", ": nan", "none,"))


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_synthetic_keeps_the_share_it_was_asked_for(
    at: Path, tmp_path: Path, temperature: str
) -> None:
    """α = .7 and τ of the closed form inside 4.5 σ; the text is the target's at T = 0.

    32 prompts × 60 tokens, γ = 3, seed 0.
    """
    prompts = lines(tmp_path / "p.txt", *[f"w{i % 30 + 1} w{i % 7}" for i in range(32)])
    flags = ["--temperature", temperature, "--batch-size", "32", "-n", "32", "-g", "3"]
    more = ["--max-new-tokens", "60", "--dtype", "float64"]
    measure(tmp_path / "o", at / "t", ["synthetic:alpha=0.7,c=0.1"], prompts, *flags, *more)
    row = cell(tmp_path / "o", 3)
    assert near(float(row["alpha"]), 0.7, int(row["num_tested"]))
    tau = (1 - 0.7**4) / 0.3
    assert abs(float(row["tau"]) - tau) < SPREAD * 1.25 / math.sqrt(int(row["num_cycles"]))
    if temperature == "0":
        assert tokens(tmp_path / "o", 3) == tokens(tmp_path / "o", 0)
    measured = ["t_draft_ms", "latency_ms", "speedup", "cost_ratio", "tokens_per_second"]
    assert [row[name] for name in measured] == [""] * 5
    simulated = [row[f"{name}_simulated"] for name in ("t_draft_ms", "latency_ms", "speedup")]
    step = float(cell(tmp_path / "o", 0)["t_verify_ms"])
    assert float(simulated[0]) == pytest.approx(0.1 * 3 * step)
    assert all(float(value) > 0 for value in simulated)


def test_an_acceptance_out_of_reach_is_refused_with_the_least_that_is_not(
    at: Path, tmp_path: Path
) -> None:
    """IID(P): its least likely token has probability .1, so α below .1 cannot be had; exit 2."""
    flags = ["--temperature", "1"]
    drafts = ["synthetic:alpha=0.05"]
    found = refused(*words(tmp_path / "o", at / "p", drafts, at / "one.txt"), *flags)
    assert found[0] == "error: alpha 0.05 cannot be reached: the least here is 0.1"
    assert "synthetic:alpha=0.05" in found[1]
    assert not (tmp_path / "o").exists()
    measure(tmp_path / "o", at / "p", ["synthetic:alpha=0.2"], at / "one.txt", *flags)


def test_a_batch_that_the_prompts_cannot_fill_is_refused() -> None:
    """It would be measured under a name that says more rows than there were."""
    recipe = merge_flags(default_recipe(), {"batch_size": "1,4"})
    said: list[str] = []
    _check_batches(recipe, 6, said.append)
    assert said == ["note: at batch 4 the last batch has 2 prompts"]
    with pytest.raises(UsageError, match="--batch-size 4: no more than 3 prompts"):
        _check_batches(recipe, 3, said.append)
