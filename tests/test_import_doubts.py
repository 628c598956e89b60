"""`specbench import`: what failed, and figures that contradict each other, are remarked."""

import json
import shutil

import pytest
from test_import import (
    LISTS,
    LOGGED,
    PLAIN,
    PRINTED,
    SERVED,
    TWO,
    block,
    imported,
    lines,
    near,
    question,
    response,
    sglang,
    specbench,
    timings,
)

__all__ = ["imported", "specbench"]
RATE = "spec_decode_acceptance_rate"


@pytest.fixture
def remarks(imported):
    """The remarks of an import, which the terminal and report.md show, too."""

    def call(text, *flags, name="result.json"):
        *_, manifest, out, folder = imported(text, *flags, name=name)
        found = manifest["imported"]["remarks"]
        shown = " ".join(out.split())
        assert all(" ".join(one.split()) in shown for one in found)
        assert ("Remarks" in (folder / "report.md").read_text()) == bool(found)
        return found

    return call


def served(**changed):
    return json.dumps(SERVED | changed)


def test_a_file_that_agrees_with_itself_has_no_remark(remarks):
    assert remarks(served()) == []


@pytest.mark.parametrize(
    "counts", [{"completed": 1, "failed": 3}, {"completed": 1, "failed": None, "num_prompts": 4}]
)
def test_failed_requests_of_a_benchmark_are_told(remarks, counts):
    changed = counts | {"total_output_tokens": 6}
    (said,) = remarks(served(**changed))
    assert said.startswith("3 of 4 requests failed and are in no time")
    assert "the server's counters hold their part" in said


def test_failures_in_lists_are_told_with_a_reason_and_held_against_the_totals(remarks):
    """2 answers of 5 and 9 tokens after 0.1 and 0.2 s, one time-out."""
    right = {"completed": 2, "failed": 1, "total_output_tokens": 14, "mean_ttft_ms": 150.0}
    found = remarks(served(**LISTS, **right, total_input_tokens=15))
    assert found == [
        "1 of 3 requests failed and is in no time; the server's counters hold its part (timed out)"
    ]


@pytest.mark.parametrize(
    ("key", "said", "told"),
    [
        ("completed", 3, "completed 3 is printed, the lists of requests give 2"),
        ("total_output_tokens", 15, "total_output_tokens 15 is printed, the lists of requests"),
        ("total_input_tokens", 24, "total_input_tokens 24 is printed, the lists of requests"),
        ("mean_ttft_ms", 149.0, "mean_ttft_ms 149 is printed, the lists of requests give 150"),
    ],
)
def test_totals_that_lists_do_not_add_up_to_are_told(remarks, key, said, told):
    lists = {"input_lens": [7, 8], "output_lens": [12, 12], "ttfts": [0.1, 0.2]}
    right = {"completed": 2, "total_output_tokens": 24, "mean_ttft_ms": 150.0}
    found = remarks(served(**lists, **(right | {key: said})))
    assert [one for one in found if one.startswith(told)]


@pytest.mark.parametrize("said", [43.333333333333336, 43.33, 43.3, 43, "43.3"])
def test_a_rate_agrees_with_its_counters_to_the_digits_that_are_written(remarks, said):
    """13 of 30."""
    assert remarks(served(**{RATE: said})) == []


@pytest.mark.parametrize("said", ["abc", [1], float("nan"), float("inf")])
def test_a_rate_that_is_no_number_is_told(remarks, said):
    assert remarks(served(**{RATE: said})) == [f"{RATE} is no number"]


def test_requests_that_do_not_add_up_are_told(remarks):
    """3 answered and 1 failed of 5."""
    found = remarks(served(completed=3, failed=1, num_prompts=5))
    assert "num_prompts 5 is printed, the counts give 4" in found


def test_a_failure_of_the_baseline_is_told_as_its_own(remarks, tmp_path):
    text = lines(timings(draft_n=0, draft_n_accepted=0), {"id": "e", "error": "x"})
    found = remarks(lines(timings()), *other(tmp_path, text))
    assert found[0].startswith("baseline: 1 of 2 requests failed")


def test_ids_that_are_written_alike_stand_twice(specbench, tmp_path):
    (tmp_path / "f").write_text(lines({"id": "a\x1b", **timings()}, {"id": "a\\x1b", **timings()}))
    code, _, err = specbench("import", tmp_path / "f", "-o", tmp_path / "out")
    assert (code, "stands twice" in err, (tmp_path / "out").exists()) == (2, True, False)


@pytest.mark.parametrize("said", [90.0, 43.4, 44, 0.4333])
def test_a_rate_that_its_counters_do_not_give_is_told(remarks, said):
    (found,) = remarks(served(**{RATE: said}))
    assert found == f"{RATE} {said:g} % is printed, the counts give 43.33 %"


def test_a_rate_is_held_against_the_length_where_there_are_no_counts(remarks):
    """2.3 tokens a step of 3 drafts: 1.3 / 3 of them kept."""
    few = {"spec_decode_acceptance_length": 2.3, RATE: 50.0}
    few["spec_decode_per_position_acceptance_rates"] = [0.6, 0.4, 0.3]
    found = remarks(json.dumps(few))
    assert f"{RATE} 50 % is printed, the counts give 43.33 %" in found


def test_a_length_that_the_counters_do_not_give_is_told(remarks):
    assert remarks(served(spec_decode_acceptance_length=3.1)) == [
        "tau 3.1 is printed, the counters give 2.3"
    ]


def test_counters_of_more_tokens_than_came_hold_other_requests(remarks):
    """10 steps and 13 drafts make 23; 2 requests of 4 tokens, each 3 more in a last step: 12."""
    (found,) = remarks(served(completed=2, total_output_tokens=8, mean_e2el_ms=60.0))
    assert found == (
        "spec_decode_num_drafts and spec_decode_accepted_tokens make 23 tokens, "
        "the requests got 8: other requests are in the counters"
    )


def test_blocks_are_held_against_their_counts(remarks):
    """3 of 8 drafts kept in 4 steps: 0.375, and 1.75 tokens a step."""
    right = {"draft_acceptance_rate": 0.375, "mean_acceptance_length": 1.75}
    wrong = {"draft_acceptance_rate": 0.75, "mean_acceptance_length": 3.0}
    text = lines(response(1, block(**right)), response(2, block(**wrong)))
    assert remarks(text) == [
        "draft_acceptance_rate contradicts the counts of 1 request; r2: 0.75 is printed, "
        "the counts give 0.375",
        "mean_acceptance_length contradicts the counts of 1 request; r2: 3 is printed, "
        "the counts give 1.75",
    ]


def test_a_block_of_more_tokens_than_came_is_told(remarks):
    """7 tokens of 4 steps; of 4 tokens one is the prompt's, and a last step may add 2."""
    one = response(1, block())
    one["usage"]["completion_tokens"] = 4
    (found,) = remarks(lines(one))
    assert found.endswith("r1: 4 came, the counts make 7")


def test_responses_without_counts_are_told_with_the_servers_reason(remarks):
    broken = {"id": "r9", "error": {"message": "out of memory"}}
    found = remarks(lines(response(1, block()), response(2, None), broken))
    assert found[0].startswith("2 of 3 requests failed and are in no time or count (no speculative")


@pytest.mark.parametrize(
    ("tokens", "more"), [(3, None), (8, ""), (2, "; a release that does not would verify 1")]
)
def test_sglang_adjusts_the_tokens_of_a_chain(imported, tokens, more):
    """steps 2 and topk 1: 3 tokens are verified, whatever was asked for."""
    (row,), manifest, _, _ = imported(lines(sglang(2, 1, tokens, 1.75, 0.03)))
    assert row["gamma"] == "2"
    found = [one for one in manifest["imported"]["remarks"] if "topk 1" in one]
    if more is None:
        assert not found
    else:
        (said,) = found
        start = f"line 1: num_draft_tokens {tokens} with topk 1: SGLang sets it to steps + 1, 3"
        assert said.startswith(start)
        assert said.endswith(f"gamma is taken as steps, 2{more}")


def test_sglang_lengths_above_one_without_a_draft_are_told(remarks):
    assert remarks(lines(sglang(0, 0, 0, 2.5, 0.02) | {"speed": 50})) == [
        "line 1: acc_length 2.5 at 0 steps, which is plain decoding: 1"
    ]


def test_a_subset_of_speculators_is_held_against_its_own_counts(remarks):
    text = (
        "subset,num_drafts,num_draft_tokens,num_accepted_tokens,acceptance_length,"
        "acceptance_at_pos_0,acceptance_at_pos_1\n"
        "qa,10.0,20.0,9.0,1.9,0.6,0.3\n"
        "code,30.0,60.0,33.0,2.6,0.7,0.4\n"
    )
    found = remarks(text, name="acceptance.csv")
    assert found == ["code: tau 2.6 is printed, the counters give 2.1"]


def test_spec_bench_counts_are_held_against_the_steps(remarks):
    """Steps of 3, 1 and 2 tokens; a turn may count its first token and a cut step otherwise."""
    near_it, far = question(83, [3, 1, 2], [0.7]), question(84, [3, 1, 2], [0.7])
    near_it["choices"][0] |= {"new_tokens": [4], "decoding_steps": [2]}
    far["choices"][0] |= {"new_tokens": [40], "decoding_steps": [30]}
    found = remarks(TWO + lines(near_it, far), "--gamma", "2", name="pld.jsonl")
    assert [one for one in found if "contradicts" in one] == [
        "new_tokens contradicts the counts of 1 request; 84: 40 is printed, accept_lengths give 6",
        "decoding_steps contradicts the counts of 1 request; 84: 30 is printed, "
        "accept_lengths give 3",
    ]


def test_a_failed_turn_is_told(remarks):
    failed = question(83, [3, 3], [0.1])
    failed["choices"][0]["turns"] = ["fine", "ERROR"]
    found = remarks(TWO + lines(failed), name="pld.jsonl")
    assert found[0].startswith("1 of 3 requests failed and is in no time or count (a turn failed")


def test_llamacpp_errors_and_figures_are_told(remarks):
    """11 tokens in 200 ms: 18.18 ms each, or 20 ms behind the first one."""
    right = timings(predicted_per_token_ms=18.181818, predicted_per_second=50.0)
    wrong = timings(predicted_per_token_ms=30.0)
    text = lines(right, wrong, {"error": {"code": 503, "message": "Loading model"}})
    found = remarks(text)
    assert found[:2] == [
        "1 of 3 requests failed and is in no time or count (Loading model)",
        "predicted_per_token_ms contradicts the counts of 1 request; 2: 30 is printed, "
        "the counts give 18.18",
    ]


@pytest.mark.parametrize(
    ("text", "right", "wrong", "told"),
    [
        (PRINTED, "58.333%", "85.333%", "5: 85.333 % is printed, the counts give 58.33 %"),
        (PRINTED, "decoded   20", "decoded   30", "30 is printed, the counts give 20"),
        (LOGGED, "= 0.50000", "= 0.90000", "0.9 is printed, the counts give 0.5"),
    ],
)
def test_rates_that_llamacpp_prints_are_held_against_its_counts(
    imported, tmp_path, text, right, wrong, told
):
    *_, manifest, _, folder = imported(text, name="log.txt")
    assert not [one for one in manifest["imported"]["remarks"] if "contradicts" in one]
    shutil.rmtree(folder)
    manifest = imported(text.replace(right, wrong), name="log.txt")[1]
    assert [one for one in manifest["imported"]["remarks"] if told.split(": ")[-1] in one]


def test_a_gamma_below_what_llamacpp_drafted_is_refused(specbench, tmp_path):
    """400 tokens drafted in 40 steps are 10 each."""
    (tmp_path / "file").write_text(
        lines(timings(predicted_n=101, draft_n=400, draft_n_accepted=60))
    )
    code, _, err = specbench("import", tmp_path / "file", "-g", "2", "-o", tmp_path / "out")
    assert (code, "400 tokens drafted in 40 steps: more than 2 each" in err) == (2, True)


def test_an_interval_of_tau_ends_at_the_longest_draft(imported):
    """Drafts of 2 or 1: no step emits more than 3 tokens, however few requests there are."""
    first = block(num_draft_tokens=6, per_step_accepted=[0, 0, 0, 1], per_step_drafted=[2, 2, 1, 1])
    second = block(num_draft_tokens=7, per_step_accepted=[2, 2, 2, 1])
    second |= {"per_step_drafted": [2, 2, 2, 1], "num_accepted_draft_tokens": 7}
    first |= {"num_accepted_draft_tokens": 1}
    (row,), *_ = imported(lines(response(1, first), response(2, second)))
    assert float(row["tau"]) == near(2.0)
    assert (float(row["tau_low"]), float(row["tau_high"])) == (1.0, 3.0)


def test_an_interval_of_tau_ends_at_a_gamma_that_was_told(imported):
    """Two responses of 3 and 1.25 tokens a step: Student's t at 1 degree would end above 4."""
    few = timings(predicted_n=11, draft_n=8, draft_n_accepted=2)
    many = timings(predicted_n=31, draft_n=28, draft_n_accepted=20)
    (row,), *_ = imported(lines(few, many), "--gamma", "3")
    assert (row["tau_low"], float(row["tau_high"])) == ("1.0", 4.0)


def other(tmp_path, text):
    (tmp_path / "plain").write_text(text)
    return "--baseline", tmp_path / "plain"


def test_a_baseline_of_other_requests_is_told(remarks, tmp_path):
    plain = PLAIN | {"completed": 8, "total_output_tokens": 48, "max_concurrency": 16}
    found = remarks(served(max_concurrency=1), *other(tmp_path, json.dumps(plain)))
    assert found == [
        "the baseline completed 8 requests, the drafts 4",
        "max_concurrency is 1 here and 16 in the baseline",
    ]


def test_a_baseline_of_other_prompts_is_told(remarks, tmp_path):
    plain = json.dumps(PLAIN | {"total_input_tokens": 120})
    found = remarks(served(total_input_tokens=100), *other(tmp_path, plain))
    assert found == ["other prompts: 100 tokens here, 120 in the baseline"]


def test_a_baseline_of_the_same_requests_has_no_remark(remarks, tmp_path):
    assert remarks(served(), *other(tmp_path, json.dumps(PLAIN))) == []


def test_questions_that_stand_in_one_file_alone_are_told(remarks, tmp_path):
    slow = lines(question(81, [1] * 6, [2.4], model="v"), question(90, [1] * 6, [1.2], model="v"))
    found = remarks(TWO, *other(tmp_path, slow), name="pld.jsonl")
    assert found[0] == (
        "m-pld: both files hold 1 request, of 2 here and 2 in the baseline: "
        "a paired speedup is of those"
    )
    assert "the baseline completed" not in " ".join(found)


def test_prompts_of_another_length_are_told(remarks, tmp_path):
    slow = timings(draft_n=0, draft_n_accepted=0, predicted_ms=500.0, prompt_n=21)
    plain = lines(slow, timings(draft_n=0, draft_n_accepted=0))
    found = remarks(lines(timings(), timings()), *other(tmp_path, plain))
    assert found[0].startswith("other prompts: of 2 requests 1 with another length")


def test_sglang_batches_are_no_baseline_of_each_other(imported, tmp_path):
    flags = other(tmp_path, lines(sglang(0, 0, 0, 1.0, 0.02)))
    rows, manifest, _, _ = imported(lines(sglang(2, 1, 3, 2.25, 0.03, 8)), *flags)
    assert rows[1]["speedup"] == ""
    assert "batch 8, and the baseline's is 1: no speedup" in manifest["imported"]["remarks"]
