"""`specbench import`: each tool's file, written by hand, against counts worked by hand."""

import csv
import json
import math
import sys

import pytest

from specbench.cli import main

ROOT_6 = (math.sqrt(6) - 1) / 2
"""The α of τ 2.25 at γ 2: α + α² = 1.25."""


@pytest.fixture
def specbench(monkeypatch, capsys):
    """Run the program in this process: exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["specbench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, *capsys.readouterr()

    return call


@pytest.fixture
def imported(specbench, tmp_path):
    """The folder, the rows of its summary, and its run.json."""

    def call(text, *flags, name="result.json"):
        path, folder = tmp_path / name, tmp_path / "out"
        path.write_text(text, encoding="utf-8")
        code, out, err = specbench("import", path, "-o", folder, *flags)
        assert (code, err) == (0, ""), err
        with (folder / "summary.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return rows, json.loads((folder / "run.json").read_text()), out, folder

    return call


def near(value):
    return pytest.approx(value, rel=1e-12)


def lines(*objects):
    return "".join(json.dumps(one) + "\n" for one in objects)


# 10 steps of 3 drafts: 4 kept none, 2 one, 1 two, 3 all. 13 kept in 10 + 6 + 4 tests.
SERVED = {
    "date": "20261101-101500",
    "backend": "vllm",
    "model_id": "acme/target-8b",
    "completed": 4,
    "failed": 0,
    "total_output_tokens": 24,
    "request_throughput": 2.0,
    "output_throughput": 12.0,
    "mean_ttft_ms": 50.0,
    "mean_e2el_ms": 150.0,
    "mean_tpot_ms": 21.5,
    "spec_decode_acceptance_rate": 43.333333333333336,
    "spec_decode_acceptance_length": 2.3,
    "spec_decode_num_drafts": 10,
    "spec_decode_draft_tokens": 30,
    "spec_decode_accepted_tokens": 13,
    "spec_decode_per_position_acceptance_rates": [0.6, 0.4, 0.3],
}
PLAIN = {k: v for k, v in SERVED.items() if "spec_" not in k} | {"mean_e2el_ms": 250.0}
LISTS = {
    "input_lens": [7, 8, 9],
    "output_lens": [5, 9, 0],
    "ttfts": [0.1, 0.2, 0.0],
    "itls": [[0.02, 0.02], [0.03, 0.03], []],
    "errors": ["", "", "timed out"],
}
"""Of --save-detailed: three requests, of which one failed."""


def test_vllm_bench_serve_gives_alpha_from_its_positions(imported):
    (row,), manifest, out, _ = imported(json.dumps(SERVED, indent=2))
    assert (row["gamma"], row["engine"], row["target"]) == ("3", "vllm", "acme/target-8b")
    counts = ("num_cycles", "num_drafted", "num_tested", "num_accepted", "num_full_accept")
    assert [row[name] for name in counts] == ["10", "30", "20", "13", "3"]
    assert (float(row["alpha"]), row["alpha_kind"]) == (near(0.65), "positions")
    assert float(row["tau"]) == near(2.3)
    assert float(row["tau_closed_form"]) == near(1 + 0.65 + 0.65**2 + 0.65**3)
    assert float(row["accepted_per_drafted"]) == near(13 / 30)
    # 4 requests of 100 ms behind the first token, 20 tokens.
    assert float(row["latency_ms"]) == near(20.0)
    empty = ("temperature", "batch_size", "speedup", "t_draft_ms", "alpha_low", "device")
    assert [row[name] for name in empty] == [""] * len(empty)
    assert manifest["imported"]["reported"]["mean_tpot_ms"] == "21.5"
    assert "steps without one are left out" in out.replace("\n  ", " ")


def test_vllm_rates_that_were_rounded_give_alpha_from_shares(imported):
    """0.62 of 10 steps is no whole number, so that the rates stay shares."""
    changed = {"spec_decode_per_position_acceptance_rates": [0.62, 0.38, 0.3]}
    (row,), *_ = imported(json.dumps(SERVED | changed))
    assert row["alpha_kind"] == "positions"
    assert float(row["alpha"]) == near(1.3 / 2.0)


def test_vllm_without_positions_inverts_tau(imported):
    few = {k: v for k, v in SERVED.items() if "per_position" not in k}
    (row,), *_ = imported(json.dumps(few))
    alpha = float(row["alpha"])
    assert row["alpha_kind"] == "inverted"
    assert 1 + alpha + alpha**2 + alpha**3 == near(2.3)
    assert (row["num_tested"], row["tau_gap"]) == ("", "")


def test_vllm_drafts_of_varying_length_have_no_alpha(imported):
    changed = {"spec_decode_draft_tokens": 29}
    (row,), manifest, _, _ = imported(json.dumps(SERVED | changed))
    assert (row["alpha"], row["alpha_kind"], float(row["tau"])) == ("", "", near(2.3))
    assert any("draft lengths vary" in one for one in manifest["imported"]["remarks"])


def test_a_baseline_gives_the_speedup_as_a_ratio_of_totals(imported, tmp_path):
    (tmp_path / "plain.json").write_text(json.dumps(PLAIN))
    rows, *_ = imported(json.dumps(SERVED), "--baseline", tmp_path / "plain.json")
    plain, drafted = rows
    assert (plain["gamma"], plain["tau"], plain["alpha"]) == ("0", "1.0", "")
    assert float(drafted["baseline_latency_ms"]) == near(40.0)
    assert float(drafted["speedup"]) == near(2.0)
    assert drafted["speedup_low"] == ""


def test_vllm_details_give_requests_and_a_paired_interval(imported, tmp_path):
    """0.10 s for 12 tokens behind the first ones, 0.30 s without a draft."""
    slow = LISTS | {"itls": [[0.04] * 4, [0.0175] * 8, []]}
    (tmp_path / "plain.json").write_text(json.dumps(PLAIN | slow))
    flags = ("--baseline", tmp_path / "plain.json", "--draft", "eagle")
    rows, _, _, folder = imported(json.dumps(SERVED | LISTS), *flags)
    row = rows[1]
    assert float(row["latency_ms"]) == near(100 / 12)
    assert float(row["speedup"]) == near(3.0)
    assert float(row["speedup_low"]) < 3 < float(row["speedup_high"])
    assert (row["status"], row["num_prompts"], row["num_failed"]) == ("partial", "2", "1")
    assert row["num_output_tokens"] == "14"
    with (folder / "generations.csv").open(newline="") as file:
        made = [one for one in csv.DictReader(file) if one["gamma"] == "3"]
    assert [one["num_output_tokens"] for one in made] == ["5", "9", ""]
    assert [one["status"] for one in made] == ["ok", "ok", "error"]
    assert float(made[1]["live_s"]) == near(0.06)
    assert {one["num_cycles"] for one in made} == {""}


def test_several_results_in_one_file_are_told_apart_by_gamma(imported):
    one = SERVED | {"spec_decode_draft_tokens": 10, "spec_decode_accepted_tokens": 6}
    one |= {"spec_decode_acceptance_length": 1.6}
    one |= {"spec_decode_per_position_acceptance_rates": [0.6]}
    rows, *_ = imported(lines(SERVED, one))
    assert [(row["gamma"], float(row["alpha"])) for row in rows] == [("3", 0.65), ("1", 0.6)]


def block(**changed):
    """4 steps of 2 drafts: 2 kept none, 1 one, 1 both: 3 kept in 2 + 2 + 2 tests."""
    found = {
        "num_spec_steps": 4,
        "num_draft_tokens": 8,
        "num_accepted_draft_tokens": 3,
        "num_spec_tokens": 2,
        "acceptance_histogram": [2, 1, 1],
    }
    return found | changed


def response(number, spec):
    usage = {"prompt_tokens": 11, "completion_tokens": 8}
    metrics = {"speculative_decoding": spec}
    return {"id": f"r{number}", "model": "t", "usage": usage, "metrics": metrics}


def test_vllm_requests_give_counts_with_intervals(imported):
    other = block(acceptance_histogram=[0, 3, 1], num_accepted_draft_tokens=5)
    text = lines(response(1, block()), response(2, other), response(3, None))
    (row,), _, _, folder = imported(text)
    # Of 8 steps 8 drafts were kept in 6 + 8 tests.
    assert (row["alpha_kind"], float(row["alpha"])) == ("counts", near(8 / 14))
    assert float(row["tau"]) == near(2.0)
    assert float(row["alpha_low"]) < 8 / 14 < float(row["alpha_high"])
    assert (row["num_prompts"], row["num_failed"], row["status"]) == ("2", "1", "partial")
    with (folder / "positions.csv").open(newline="") as file:
        found = [tuple(one.values()) for one in csv.DictReader(file)]
    assert [one[1:] for one in found] == [
        ("r1", "0", "1", "4", "2"),
        ("r1", "0", "2", "2", "1"),
        ("r2", "0", "1", "4", "4"),
        ("r2", "0", "2", "4", "1"),
    ]


@pytest.mark.parametrize(
    "detail",
    [
        {"acceptance_histogram_by_draft_length": {"2": [1, 0, 1], "1": [1, 1]}},
        {"per_step_accepted": [0, 2, 1, 0], "per_step_drafted": [2, 2, 1, 1]},
    ],
)
def test_vllm_requests_with_varying_drafts_have_their_tests_counted(imported, detail):
    """5 tests kept 3; the closed form is the mean of those of lengths 2 and 1."""
    spec = block(num_draft_tokens=6, **detail)
    (row,), *_ = imported(lines({"prompt_tokens": 9, "metrics": spec}))
    assert (row["num_tested"], float(row["alpha"])) == ("5", near(0.6))
    assert float(row["tau"]) == near(1.75)
    assert float(row["tau_closed_form"]) == near((1.96 + 1.6) / 2)
    assert float(row["tau_gap"]) == pytest.approx(1.75 - 1.78, abs=1e-12)


def sglang(steps, topk, tokens, length, step_s, batch=1):
    return {
        "batch_size": batch,
        "steps": steps,
        "topk": topk,
        "num_draft_tokens": tokens,
        "acc_length": length,
        "step_time": step_s,
        "speed": round(length / step_s, 3),
        "completion_tokens": 512.0,
    }


def test_sglang_lines_stand_beside_the_baseline_of_their_batch(imported):
    text = lines(
        sglang(0, 0, 0, 1.0, 0.02),
        sglang(2, 1, 3, 2.25, 0.03),
        sglang(0, 0, 0, 1.0, 0.04, 8),
        sglang(2, 1, 3, 2.25, 0.045, 8),
        sglang(3, 4, 16, 3.0, 0.03),
    )
    rows, manifest, out, _ = imported(text, "--temperature", "0")
    chain, large, tree = rows[1], rows[3], rows[4]
    assert (chain["gamma"], chain["alpha_kind"], chain["batch_size"]) == ("2", "inverted", "1")
    assert float(chain["alpha"]) == pytest.approx(ROOT_6, abs=1e-9)
    assert float(chain["latency_ms"]) == near(1000 * 0.03 / 2.25)
    assert float(chain["speedup"]) == near(2.25 * 0.02 / 0.03)
    assert float(large["speedup"]) == near(2.25 * 0.04 / 0.045)
    assert (tree["gamma"], tree["alpha"], tree["temperature"]) == ("", "", "0.0")
    assert tree["draft"] == "steps 3, topk 4, 16 draft tokens"
    assert float(tree["speedup"]) == near(3 * 0.02 / 0.03)
    assert any("20th percentile" in one for one in manifest["imported"]["leaves_out"])
    assert "20th percentile" in out


def test_speculators_subsets_become_categories_and_their_sums_the_whole(imported):
    text = (
        "subset,num_drafts,num_draft_tokens,num_accepted_tokens,acceptance_length,"
        "acceptance_at_pos_0,acceptance_at_pos_1\n"
        "qa,10.0,20.0,9.0,1.9,0.6,0.3\n"
        "code,30.0,60.0,33.0,2.1,0.7,0.4\n"
    )
    rows, *_ = imported(text, name="acceptance.csv")
    assert [row["category"] for row in rows] == ["all", "qa", "code"]
    alphas = [float(row["alpha"]) for row in rows]
    assert alphas == [near(42 / (40 + 27)), near(9 / 16), near(33 / 51)]
    assert [row["num_tested"] for row in rows] == ["67", "16", "51"]
    assert {row["gamma"] for row in rows} == {"2"}


def question(number, lengths, walls, category="writing", model="m-pld"):
    choice = {
        "index": 0,
        "turns": ["a"] * len(walls),
        "decoding_steps": [len(lengths)],
        "new_tokens": [sum(lengths)],
        "wall_time": walls,
        "accept_lengths": lengths,
    }
    return {
        "question_id": number,
        "category": category,
        "answer_id": f"x{number}",
        "model_id": model,
        "choices": [choice],
        "tstamp": 1.0,
    }


TWO = lines(question(81, [3, 1, 2], [0.7, 0.5]), question(82, [3, 3], [0.6], "math"))


def test_spec_bench_has_tau_and_no_alpha_without_gamma(imported):
    rows, _, _, folder = imported(TWO, name="pld.jsonl")
    assert [row["category"] for row in rows] == ["all", "writing", "math"]
    assert [float(row["tau"]) for row in rows] == [near(2.4), near(2.0), near(3.0)]
    assert {row["alpha"] for row in rows} == {row["gamma"] for row in rows} == {""}
    assert (rows[0]["draft"], rows[0]["num_cycles"]) == ("m-pld", "5")
    assert not (folder / "positions.csv").exists()


def test_spec_bench_with_gamma_counts_every_test(imported):
    """Steps that kept 2, 0, 1 and 2, 2 of 2 drafts: 7 kept in 9 tests."""
    rows, *_ = imported(TWO, "--gamma", "2", name="pld.jsonl")
    assert (rows[0]["num_tested"], float(rows[0]["alpha"])) == ("9", near(7 / 9))
    assert rows[0]["alpha_kind"] == "counts"


def test_spec_bench_speedup_holds_the_prompt_pass(imported, tmp_path):
    slow = lines(question(81, [1] * 6, [2.4], model="v"), question(82, [1] * 6, [1.2], model="v"))
    (tmp_path / "vanilla.jsonl").write_text(slow)
    rows, *_ = imported(TWO, "--baseline", tmp_path / "vanilla.jsonl", name="pld.jsonl")
    row = next(one for one in rows if one["draft"] == "m-pld")
    assert (row["speedup"], row["latency_ms"]) == ("", "")
    assert float(row["speedup_e2e"]) == near(2.0)


def test_a_failed_turn_of_spec_bench_is_no_measurement(imported):
    failed = question(83, [3, 3], [0.1])
    failed["choices"][0]["turns"] = ["fine", "ERROR"]
    rows, *_ = imported(TWO + lines(failed), name="pld.jsonl")
    assert (rows[0]["num_prompts"], rows[0]["num_failed"]) == ("2", "1")
    assert float(rows[0]["tau"]) == near(2.4)


def timings(**changed):
    found = {"prompt_n": 20, "prompt_ms": 30.0, "predicted_n": 11, "predicted_ms": 200.0}
    return {"timings": found | {"draft_n": 12, "draft_n_accepted": 6} | changed}


def test_llamacpp_cycles_are_the_tokens_that_no_draft_gave(imported):
    """10 tokens behind the prompt's, 6 of them drafted: 4 steps, 2.5 tokens each."""
    (row,), *_ = imported(json.dumps(timings()))
    assert (row["num_cycles"], row["num_drafted"], row["num_accepted"]) == ("4", "12", "6")
    assert float(row["tau"]) == near(2.5)
    assert float(row["latency_ms"]) == near(20.0)
    assert float(row["accepted_per_drafted"]) == near(0.5)
    assert (row["alpha"], row["gamma"]) == ("", "")


def test_llamacpp_with_a_gamma_that_not_every_step_drafted_says_so(imported):
    """4 steps drafted 12: no 4 each."""
    (row,), _, out, _ = imported(json.dumps(timings()), "--gamma", "4")
    assert (row["alpha"], row["gamma"]) == ("", "4")
    assert "draft lengths vary: no gamma gives alpha" in " ".join(out.split())
    assert "needs gamma" not in out


def test_llamacpp_with_gamma_inverts_tau_where_every_step_drafted_it(imported):
    rows = [timings(predicted_n=10, draft_n=8, draft_n_accepted=5), timings(draft_n=10)]
    rows[1]["timings"]["draft_n_accepted"] = 5
    (row,), *_ = imported(lines(*rows), "--gamma", "2")
    # 19 tokens, 10 drafted: 9 steps of 2 drafts.
    assert (row["num_cycles"], row["num_drafted"]) == ("9", "18")
    alpha = float(row["alpha"])
    assert (row["alpha_kind"], 1 + alpha + alpha**2) == ("inverted", near(19 / 9))


def test_llamacpp_baseline_is_paired_by_response(imported, tmp_path):
    slow = timings(draft_n=0, draft_n_accepted=0, predicted_ms=500.0)
    (tmp_path / "plain.json").write_text(lines(slow))
    rows, *_ = imported(lines(timings()), "--baseline", tmp_path / "plain.json", "-d", "small")
    assert float(rows[1]["speedup"]) == near(2.5)


PRINTED = """encoded    7 tokens in    0.200 seconds, speed:   35.000 t/s
decoded   20 tokens in    1.000 seconds, speed:   20.000 t/s

n_draft   = 4
n_predict = 20
n_drafted = 24
n_accept  = 14
accept    = 58.333%
"""
LOGGED = """slot print_timing: id  0 | task 7 |
prompt eval time =      30.00 ms /    20 tokens (    1.50 ms per token)
       eval time =     200.00 ms /    11 tokens (   18.18 ms per token)
      total time =     230.00 ms /    31 tokens
draft acceptance rate = 0.50000 (    6 accepted /    12 generated)
"""


def test_what_llama_speculative_prints(imported):
    """20 tokens, 14 of them drafted: 6 steps of 4 drafts."""
    (row,), *_ = imported(PRINTED, "-g", "4", name="log.txt")
    assert (row["num_cycles"], float(row["tau"])) == ("6", near(20 / 6))
    assert float(row["latency_ms"]) == near(50.0)
    alpha = float(row["alpha"])
    assert sum(alpha**i for i in range(5)) == near(20 / 6)


def test_what_llama_server_logs_is_what_its_responses_hold(imported):
    (row,), *_ = imported(LOGGED, name="server.log")
    assert (row["num_cycles"], float(row["tau"]), float(row["latency_ms"])) == (
        "4",
        near(2.5),
        near(20.0),
    )
