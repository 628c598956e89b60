"""`specbench theory --counters` on published tables: every row against its own printed numbers.

The expected values are computed here from the printed text alone, by plain sums and bisection.
"""

import csv
import io
import math
import sys
from pathlib import Path

import pytest

from specbench.cli import main

PUBLISHED = Path(__file__).parent / "data" / "published"
FILES = {
    "chen2023_table1.csv": 3,
    "counter_fixtures.csv": 6,
    "leviathan2023_table1_RECALLED.csv": 6,
    "leviathan2023_table2.csv": 12,
    "leviathan2023_table3_alpha.csv": 16,
    "leviathan2023_table5_lenience.csv": 4,
    "magicdec_tables.csv": 76,
    "vllm_acceptance_baselines.csv": 4,
}
CANNOT = "the formula cannot explain it"


@pytest.fixture
def specbench(monkeypatch, capsys):
    """Run the program in this process: exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["specbench", "theory", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, *capsys.readouterr()

    return call


@pytest.fixture
def pairs(specbench):
    """Rows of a published file, each with the answer to it."""

    def read(name, *flags):
        with (PUBLISHED / name).open(encoding="utf-8", newline="") as file:
            printed = list(csv.DictReader(file))
        code, out, _ = specbench("--counters", str(PUBLISHED / name), "--format", "csv", *flags)
        found = list(csv.DictReader(io.StringIO(out)))
        assert (code, len(found)) == (0, len(printed))
        return list(zip(printed, found, strict=True))

    return read


def tau(alpha, gamma):
    return math.fsum(alpha**i for i in range(gamma + 1))


def inverse(tokens, gamma):
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if tau(middle, gamma) < tokens else (low, middle)
    return low


def half(text):
    """Half of the last printed digit."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2])


def near(value):
    return pytest.approx(value, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", FILES)
def test_every_published_file_is_read_whole(pairs, name):
    rows = pairs(name)
    assert len(rows) == FILES[name]
    assert [int(found["line"]) for _, found in rows] == list(range(2, len(rows) + 2))
    assert {path.name for path in PUBLISHED.iterdir()} == set(FILES)
    for _, found in rows:
        assert not {"nan", "inf", "None"} & set(found.values())
        assert found["alpha"] or "alpha" in found["note"]
        assert found["tau"] or "tau need" in found["note"]


def test_vllm_baselines_give_alpha_from_positions(pairs):
    for printed, found in pairs("vllm_acceptance_baselines.csv"):
        first, second, third = (float(printed[f"pos_{i}"]) for i in range(3))
        kept, tests = first + second + third, 1 + first + second
        assert found["alpha_kind"] == "positions"
        assert float(found["alpha"]) == near(kept / tests)
        assert float(found["tau"]) == near(1 + kept)
        assert float(found["tau_closed_form"]) == near(tau(kept / tests, 3))
        assert float(found["tau_gap"]) == near(1 + kept - tau(kept / tests, 3))
        assert float(found["tau_gap_identity"]) == pytest.approx(float(found["tau_gap"]), abs=1e-12)
        agrees = abs(1 + kept - float(printed["acceptance_length"])) <= 0.005
        assert ("is printed, the counters give" in found["note"]) is not agrees
    notes = [found["note"] for _, found in pairs("vllm_acceptance_baselines.csv")]
    assert notes == ["", "", "", "tau 1.35 is printed, the counters give 1.363"]


def test_counter_fixtures_give_tau_and_the_rates_as_printed(pairs):
    for printed, found in pairs("counter_fixtures.csv"):
        accepted, drafted = (int(printed[f"num_{word}_tokens"]) for word in ("accepted", "draft"))
        assert float(found["accepted_per_drafted"]) == near(accepted / drafted)
        length, rate = printed["acceptance_length"], printed["draft_acceptance_rate"]
        assert abs(float(found["tau"]) - float(length)) <= half(length) + 1e-9
        assert abs(accepted / drafted - float(rate)) <= half(rate) + 1e-9
        if printed["num_drafts"]:
            cycles = int(printed["num_drafts"])
            assert float(found["tau"]) == near(1 + accepted / cycles)
            assert drafted == cycles * int(printed["gamma"])


def test_counter_fixtures_give_alpha_as_far_as_they_can(pairs):
    rows = {printed["source"]: found for printed, found in pairs("counter_fixtures.csv")}
    kinds = {name: found["alpha_kind"] for name, found in rows.items()}
    assert kinds == {
        "vllm_issue_26191": "inverted",
        "vllm_pr_23563": "positions",
        "vllm_pr_48915": "positions",
        "ik_llama_pr_2156_code": "positions",
        "llama_cpp_pr_24536": "",
        "tt_gh_60788233702": "inverted",
    }
    expected = {
        "vllm_issue_26191": inverse(1 + 12208 / 4816, 7),
        "vllm_pr_23563": 37294 / (31214 * (1 + 0.66 + 0.36)),
        "ik_llama_pr_2156_code": 538 / (220 * (1 + 0.905 + 0.805)),
        "tt_gh_60788233702": inverse(1 + 1145159 / 284215, 5),
    }
    for name, alpha in expected.items():
        assert float(rows[name]["alpha"]) == near(alpha)
    for name in ("vllm_pr_23563", "ik_llama_pr_2156_code"):
        gap = float(rows[name]["tau"]) - tau(float(rows[name]["alpha"]), 3)
        assert float(rows[name]["tau_gap"]) == near(gap)
        assert float(rows[name]["tau_gap_identity"]) == pytest.approx(gap, abs=1e-12)
    for name in ("vllm_issue_26191", "tt_gh_60788233702"):
        assert rows[name]["tau_gap"] == rows[name]["tau_gap_identity"] == ""
        assert "need accepted counts per position" in rows[name]["note"]
    assert "position 4 is missing" in rows["tt_gh_60788233702"]["note"]


def test_a_histogram_gives_everything(pairs):
    """39 cycles kept none, 1 kept one, 3 kept all three: 39 + 2 + 9 tests, 1 + 9 kept."""
    found = pairs("counter_fixtures.csv")[2][1]
    names = ("num_tested", "num_accepted", "num_full_accept", "alpha", "note")
    assert [found[name] for name in names] == ["50", "10", "3", "0.2", ""]
    gap = 1 + 10 / 43 - (1 + 0.2 + 0.04 + 0.008)
    assert float(found["tau_gap"]) == near(gap)
    assert gap == near(0.2 * (0.2**3 - 3 / 43) / 0.8)
    assert float(found["tau_gap_identity"]) == near(gap)


def test_where_draft_steps_are_not_printed_alpha_is_empty_and_they_are_named(pairs):
    found = pairs("counter_fixtures.csv")[4][1]
    assert (found["alpha"], found["num_cycles"], found["tau"]) == ("", "", "2.63")
    assert found["note"] == "alpha needs gamma and num_cycles (num_drafts), or num_tested"


def test_magicdec_latency_follows_the_formula_within_the_stated_overhead(pairs):
    for printed, found in pairs("magicdec_tables.csv"):
        draft, verify, omega = (float(printed[n]) for n in ("gamma_TD_ms", "TV_ms", "omega"))
        formula, measured = (draft + verify) / omega, float(printed["T_SD_ms"])
        assert float(found["latency_formula_ms"]) == near(formula)
        assert formula == pytest.approx(float(printed["L_pred_ms"]), abs=5e-4)
        assert float(found["overhead"]) == near(measured / formula - 1)
        assert 100 * float(found["overhead"]) == pytest.approx(
            float(printed["overhead_pct"]), abs=0.0051
        )
        gamma = int(printed["gamma"])
        assert float(found["alpha"]) == near(inverse(omega, gamma))
        assert float(found["alpha"]) == pytest.approx(float(printed["alpha_inverted"]), abs=6e-5)
        assert (found["alpha_kind"], found["tau_gap"]) == ("inverted", "")
        plain = float(printed["T_AR_ms"])
        assert float(found["cost_ratio"]) == pytest.approx(draft / gamma / plain, abs=6e-5)
        assert float(found["verify_ratio"]) == pytest.approx(verify / plain, abs=6e-5)
        assert float(found["speedup_formula"]) == near(plain / formula)


def test_magicdec_speedups_follow_from_the_latencies_to_the_printed_digits(pairs):
    for printed, found in pairs("magicdec_tables.csv"):
        plain, measured = printed["T_AR_ms"], printed["T_SD_ms"]
        assert float(found["speedup"]) == near(float(plain) / float(measured))
        low = (float(plain) - 0.005) / (float(measured) + 0.005)
        high = (float(plain) + 0.005) / (float(measured) - 0.005)
        said = float(printed["speedup"])
        assert low - 0.005 <= said <= high + 0.005
        assert abs(float(found["speedup"]) - said) <= 0.0062
        assert "speedup" not in found["note"]


def test_one_row_of_magicdec_is_faster_than_its_formula(pairs):
    """Qwen-2.5-32B with Qwen-2.5-7B, batch 8: 8.74 ms, where (9.04 + 11.31) / 2.32 is 8.77."""
    rows = pairs("magicdec_tables.csv")
    faster = [printed for printed, found in rows if CANNOT in found["note"]]
    assert [(p["draft"], p["batch"], p["T_SD_ms"]) for p in faster] == [
        ("Qwen-2.5-7B", "8", "8.74")
    ]
    assert sum("within rounding" in found["note"] for _, found in rows) == 8
    assert min(float(found["overhead"]) for _, found in rows) == pytest.approx(-0.0036, abs=5e-5)
    assert max(float(found["overhead"]) for _, found in rows) == pytest.approx(0.0728, abs=5e-5)


def test_leviathan_table_1_is_the_closed_form(pairs):
    for printed, found in pairs("leviathan2023_table1_RECALLED.csv"):
        alpha, gamma = float(printed["alpha"]), int(printed["gamma"])
        assert float(found["tau_closed_form"]) == near(tau(alpha, gamma))
        assert abs(tau(alpha, gamma) - float(printed["speed_factor_recalled"])) <= 0.005
        assert abs((gamma + 1) / tau(alpha, gamma) - float(printed["ops_factor_recalled"])) <= 0.005
        assert (found["alpha_kind"], found["tau"]) == ("given", "")
        assert "tau needs num_accepted and num_cycles" in found["note"]
        assert CANNOT not in found["note"]
    for printed, found in pairs("leviathan2023_table1_RECALLED.csv", "-c", "0"):
        said = printed["speed_factor_recalled"]
        assert abs(float(found["speedup_formula"]) - float(said)) <= half(said)


def test_leviathan_table_2_says_which_rows_the_formula_cannot_explain(pairs):
    """Informational: α was measured apart from the runs. One of four rows is only rounding."""
    beyond, rounding = [], []
    for number, (printed, found) in enumerate(pairs("leviathan2023_table2.csv"), start=1):
        most = tau(float(printed["alpha"]), int(printed["gamma"]))
        assert float(found["tau_closed_form"]) == near(most)
        assert most == pytest.approx(float(printed["tau_closed_form"]), abs=6e-5)
        above = float(printed["speedup_reported"]) > most
        assert above is (printed["within_bound"] == "NO")
        assert above is ("at c = 0 and v = 1, its most" in found["note"])
        beyond += [number] if CANNOT in found["note"] else []
        rounding += [number] if "within rounding" in found["note"] else []
        highest = tau(float(printed["alpha"]) + 0.005, int(printed["gamma"]))
        assert (number in beyond) is (float(printed["speedup_reported"]) - 0.05 > highest)
        assert found["speedup_formula"] == ""
        assert "speedup_formula needs cost_ratio" in found["note"]
    assert (beyond, rounding) == ([7, 10, 11], [4])


def test_leviathan_table_3_is_alpha_alone(pairs):
    for printed, found in pairs("leviathan2023_table3_alpha.csv"):
        assert float(found["alpha"]) == float(printed["alpha"])
        assert (found["alpha_kind"], found["tau"], found["tau_closed_form"]) == ("given", "", "")
        assert found["note"].endswith("tau_closed_form needs gamma")


def test_leviathan_table_5_exceeds_the_formula_at_every_gamma(pairs):
    for printed, found in pairs("leviathan2023_table5_lenience.csv"):
        alpha, cost = float(printed["alpha"]), float(printed["c"])
        most = max(tau(alpha, gamma) / (gamma * cost + 1) for gamma in range(1, 100))
        assert float(printed["improvement_reported"]) > most
        assert f"above the formula's {most:.4g} at gamma" in found["note"]
        assert CANNOT in found["note"]
        assert "speedup_formula needs gamma" in found["note"]


def test_chen_table_1_names_the_counters_that_it_does_not_print(pairs):
    rows = pairs("chen2023_table1.csv")
    for printed, found in rows:
        plain, measured = float(printed["ms_per_token_ar"]), float(printed["ms_per_token_sps"])
        assert float(found["speedup"]) == near(plain / measured)
        assert float(found["cost_ratio"]) == near(float(printed["draft_ms_per_token"]) / plain)
        empty = ("alpha", "tau", "tau_gap", "latency_formula_ms", "speedup_formula")
        assert {found[name] for name in empty} == {""}
        assert "alpha and tau need num_accepted and num_cycles (num_drafts)" in found["note"]
        assert "latency_formula_ms needs t_verify_ms and tau" in found["note"]
    wrong = ["speedup" in found["note"].split("needs tau")[-1] for _, found in rows]
    assert wrong == [True, False, False]
    assert "speedup 1.92 is printed, the latencies give 1.875" in rows[0][1]["note"]
