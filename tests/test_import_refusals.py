"""`specbench import` on files that are broken, foreign, contradictory or huge."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_import import (
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
ROOT = Path(__file__).parents[1]
PUBLISHED = Path(__file__).parent / "data" / "published"
S = "spec_decode_"
RATES = f"{S}per_position_acceptance_rates"
HEADER = "subset,num_drafts,num_draft_tokens,num_accepted_tokens,acceptance_at_pos_0\n"


def served(**changed):
    return json.dumps(SERVED | changed)


REFUSED = [
    ("", "is empty", ""),
    (" \n", "is empty", ""),
    ("hello\n", "is of no known format", "spec-bench: Spec-Bench"),
    ("[]", "is of no known format", ""),
    ("[1]", "no JSON object: 1", "line 1"),
    ('{"rows": 1}', "is of no known format", ""),
    (served()[:300], "cut off", "line 1"),
    (TWO[:-30], "cut off", "line 2"),
    ('{"timings": ' + "[" * 99999 + "]" * 99999 + "}", "nested too deeply", "line 1"),
    (served(**{f"{S}num_drafts": -1}), '"-1" is below 0', f"key {S}num_drafts"),
    (served(**{f"{S}num_drafts": 10**400}), "is above 10000", f"key {S}num_drafts"),
    (served(**{f"{S}num_drafts": True}), '"true" is no number', f"key {S}num_drafts"),
    (served(**{f"{S}num_drafts": 2.5}), "is no whole number", f"key {S}num_drafts"),
    (served(**{f"{S}num_drafts": float("nan")}), '"NaN" is no number', f"key {S}num_drafts"),
    (served(**{f"{S}accepted_tokens": 31}), "31 exceeds", f"key {S}accepted_tokens"),
    (served(**{f"{S}accepted_tokens": 14}), "add up to 13, accepted is 14", RATES),
    (served(**{RATES: [0.4, 0.6, 0.3]}), "0.6 follows 0.4", RATES),
    (served(**{RATES: [1.2, 0.4, 0.3]}), '"1.2" is not from 0 to 1', RATES),
    (served(mean_e2el_ms=float("inf")), '"Infinity" is no number', "key mean_e2el_ms"),
    (served(mean_e2el_ms=10), "ends before its first token", "key mean_e2el_ms"),
    (served(output_lens=[3], itls=[[], []]), "no length of request 2", "key output_lens"),
    (served(output_lens=[3], itls=[[-1, 2]]), "no time", "key itls"),
    (served(output_lens=[3], itls=[["x"]]), "no time", "key itls"),
    (json.dumps(PLAIN), "no spec_decode_ counters", "line 1"),
    (lines(SERVED, SERVED), "the same draft and gamma as in line 1", "line 2"),
    (lines(response(1, block(acceptance_histogram=[1, 1, 1]))), "gives num_spec_steps 3", "line 1"),
    (lines(response(1, None)), "no speculative_decoding block", "line 1"),
    (lines(response(1, block()), response(1, block())), "response r1 stands twice", "line 2"),
    (
        lines(response(1, block(acceptance_histogram_by_draft_length={"1": [1, 1, 1]}))),
        "2 of 1 drafts kept",
        "line 1",
    ),
    (lines(sglang(2, 1, 3, 3.5, 0.02)), "3.5 exceeds gamma + 1, 3", "key acc_length"),
    (lines(sglang(2, 1, 3, 2.5, 0.02) | {"speed": 1}), "is not acc_length / step_time", "speed"),
    (lines(*[sglang(2, 1, 3, 2.5, 0.02)] * 2), "the setting of line 1 again", "line 2"),
    (TWO + lines(question(81, [3], [0.1])), "question 81 stands in line 1 too", "line 3"),
    (TWO + lines(question(84, [3], [0.1], model="o")), "another model_id", "line 3"),
    (lines(question([], [1], [0.1])), "no name and no number", "key question_id"),
    (lines(question(81, [0, 1], [0.1])), "a step of 0 tokens", "key accept_lengths"),
    (lines(timings(draft_n_accepted=13)), "draft_n_accepted 13 exceeds draft_n 12", "line 1"),
    (lines(timings(predicted_n=5)), "6 drafts kept among 4 decoded tokens", "line 1"),
    (PRINTED.replace("= 14", "= 25"), "25 exceeds num_drafted 24", "line 7"),
    (PRINTED.replace("= 24", "= -24"), '"-24" is below 0', "line 7"),
    (LOGGED.split("\n", 3)[3], "no eval time before", "line 2"),
    (HEADER, "has a header and no row", ""),
    (HEADER + "a,10,10,11,0.5\n", "num_accepted_tokens 11 exceeds", "line 2, column num_acc"),
    (HEADER + "a,10,10,5,0.5\na,9,9,5,0.5\n", "the subset a of line 2 again", "line 3"),
    ("gamma,tau\n2,2\n2,2\n", "line 2 again", "line 3"),
]


@pytest.mark.parametrize(("text", "what", "where"), REFUSED)
def test_a_file_that_cannot_be_right_is_refused_in_one_message(
    specbench, tmp_path, text, what, where
):
    path, folder = tmp_path / "file", tmp_path / "out"
    path.write_text(text, encoding="utf-8")
    code, out, err = specbench("import", path, "-o", folder)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert what in err.splitlines()[0]
    assert where in err
    assert err.count("error:") == 1
    assert len(err) < 1500
    assert not folder.exists()


@pytest.mark.parametrize("data", [b"\xff\xfe{\x00", b"\x00" * 99, b"PK\x03\x04zip"])
def test_bytes_that_are_no_text_are_refused(specbench, tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    code, _, err = specbench("import", tmp_path / "file", "-o", tmp_path / "out")
    assert (code, "of no known format" in err) == (2, True)


@pytest.mark.parametrize("name", ["sglang", "spec-bench", "llamacpp", "vllm-requests", "counters"])
def test_a_forced_format_says_what_it_misses(specbench, tmp_path, name):
    (tmp_path / "file").write_text(served())
    code, out, err = specbench("import", tmp_path / "file", "--format-of", name)
    assert (code, out, err.count("error:")) == (2, "", 1)


def test_flags_that_contradict_the_file_are_refused(specbench, tmp_path):
    (tmp_path / "file").write_text(TWO)
    code, _, err = specbench("import", tmp_path / "file", "--gamma", "1", "-o", tmp_path / "out")
    assert (code, "exceeds gamma + 1, 2" in err) == (2, True)
    code, _, err = specbench("import", tmp_path / "file", "--format-of", "vvlm")
    assert (code, "vllm-bench, vllm-requests" in err) == (2, True)
    for value in ("nan", "inf", "-1"):
        assert specbench("import", tmp_path / "file", "--temperature", value)[0] == 2
    (tmp_path / "drafted").write_text(lines(timings()))
    shutil.copy(tmp_path / "drafted", tmp_path / "too")
    flags = ("--baseline", tmp_path / "too", "-o", tmp_path / "out")
    code, _, err = specbench("import", tmp_path / "drafted", *flags)
    assert (code, "so no plain decoding" in err or "exceeds gamma" in err) == (2, True)


def test_folders_and_files_that_cannot_be_used(specbench, tmp_path):
    (tmp_path / "file").write_text(served())
    assert specbench("import", tmp_path / "absent")[0] == 2
    assert specbench("import", tmp_path)[0] == 2
    code, _, err = specbench("import", tmp_path / "file", "-o", tmp_path)
    assert (code, "is not empty" in err) == (2, True)
    code, _, err = specbench("import", tmp_path / "file", "-o", tmp_path / "file" / "x")
    assert (code, err.count("error:")) == (2, 1)


def test_foreign_text_is_neutralised_wherever_it_is_shown(imported, specbench):
    evil = '=cmd|"/c calc"!A0\x1b[31m<b>|'
    text = lines({"id": "=1+1", **timings(), "model": evil})
    (row,), manifest, out, folder = imported(text, "--draft", "@sum(1)")
    assert "\x1b" not in out
    assert (row["target"][:2], row["draft"]) == ("'=", "'@sum(1)")
    assert manifest["settings"]["target"] == evil
    told = (folder / "report.md").read_text()
    assert "\x1b" not in told
    assert "<b>" not in told
    with (folder / "generations.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["prompt_id"] == "'=1+1"
    rows = json.loads(specbench("report", folder, "--format", "json")[1])
    assert (rows[0]["draft"], rows[0]["target"]) == ("@sum(1)", evil.replace("\x1b", ""))


def test_commands_that_need_cycles_of_our_own_say_so(imported, specbench):
    from specbench.errors import UsageError
    from specbench.result_files.results import load_measured, load_run

    *_, folder = imported(TWO, "--gamma", "2", name="pld.jsonl")
    with pytest.raises(UsageError, match="another tool's numbers"):
        load_measured(folder)
    run = load_run(folder)
    assert run.summary is not None
    assert run.summary["alpha"].tolist() == [near(7 / 9), near(3 / 5), near(1.0)]
    assert run.generations["num_tested"].tolist() == [5, 4]
    assert run.positions["num_accepted"].sum() == 7
    assert run.generations["gamma"].tolist() == [2, 2]


def test_no_time_of_another_prompt_is_paired(imported, tmp_path):
    """The ratio stands, without an interval, where the prompts have other lengths."""
    slow = timings(draft_n=0, draft_n_accepted=0, predicted_ms=500.0, prompt_n=21)
    (tmp_path / "plain.json").write_text(lines(slow, slow))
    rows, *_, folder = imported(lines(timings(), timings()), "--baseline", tmp_path / "plain.json")
    assert float(rows[1]["speedup"]) == near(2.5)
    assert rows[1]["speedup_low"] == ""
    shutil.rmtree(folder)
    slow["timings"]["prompt_n"] = 20
    (tmp_path / "plain.json").write_text(lines(slow, slow))
    rows, *_ = imported(lines(timings(), timings()), "--baseline", tmp_path / "plain.json")
    assert [float(rows[1][f"speedup{end}"]) for end in ("", "_low", "_high")] == [near(2.5)] * 3


def alpha_of(row):
    """α of a published row from its printed numbers alone, None where they do not tell."""
    accepted, cycles = int(row["num_accepted_tokens"]), row["num_drafts"]
    note = row["note"]
    if "histogram" in note:
        kept = [int(part) for part in note.split()[-1].split("|")]
        tests = sum(min(n + 1, 3) * c for n, c in enumerate(kept))
        return accepted / tests
    if "per position" in note and "x" not in note:
        shares = [float(part) for part in note.split("per position ")[1].split("/")]
        return accepted / (int(cycles) * (1 + shares[0] + shares[1]))
    return None


def test_published_counters_come_in_with_the_right_alpha_and_tau(specbench, tmp_path):
    path = PUBLISHED / "counter_fixtures.csv"
    assert specbench("import", path, "-o", tmp_path / "out")[0] == 0
    with path.open(newline="") as file:
        printed = {row["source"]: row for row in csv.DictReader(file)}
    with (tmp_path / "out" / "summary.csv").open(newline="") as file:
        found = {row["draft"]: row for row in csv.DictReader(file)}
    assert found.keys() == printed.keys()
    for name, row in printed.items():
        tau = float(found[name]["tau"])
        if row["num_drafts"]:
            assert tau == near(1 + int(row["num_accepted_tokens"]) / int(row["num_drafts"]))
        assert abs(tau - float(row["acceptance_length"])) <= 0.005
        alpha, kind = found[name]["alpha"], found[name]["alpha_kind"]
        wanted = alpha_of(row)
        if wanted is not None:
            assert (float(alpha), kind) == (near(wanted), "positions")
        elif row["gamma"]:
            closed = sum(float(alpha) ** i for i in range(int(row["gamma"]) + 1))
            assert (closed, kind) == (pytest.approx(tau, abs=1e-9), "inverted")
        else:
            assert (alpha, kind) == ("", "")


def test_vllm_baselines_come_in_as_vllm_writes_them(imported):
    """Each row as the JSON that the tool writes: α = (p1 + p2 + p3) / (1 + p1 + p2)."""
    with (PUBLISHED / "vllm_acceptance_baselines.csv").open(newline="") as file:
        printed = list(csv.DictReader(file))
    for number, row in enumerate(printed):
        rates = [float(row[f"pos_{i}"]) for i in range(3)]
        text = json.dumps({f"{S}acceptance_length": 1 + sum(rates), RATES: rates})
        (found,), *_ = imported_once(imported, text, number)
        assert float(found["alpha"]) == pytest.approx(sum(rates) / (1 + rates[0] + rates[1]))
        assert float(found["tau"]) == pytest.approx(1 + sum(rates), abs=1e-12)


def imported_once(imported, text, number):
    found = imported(text, name=f"{number}.json")
    shutil.rmtree(found[3])
    return found


@pytest.mark.slow
def test_a_file_of_200_megabytes_is_streamed(tmp_path):
    """One document, most of it texts and gaps; peak memory stays far below its size."""
    n = 6000
    lists = {"input_lens": [10] * n, "output_lens": [1000] * n, "ttfts": [0.1] * n}
    head = json.dumps(SERVED | lists | {"errors": [""] * n, "completed": n})[:-1]
    text, gaps = json.dumps("x" * 16000 + '"\\'), json.dumps([0.0123456789] * 1200)
    path = tmp_path / "big.json"
    with path.open("w") as file:
        file.write(head + ', "generated_texts": [')
        file.writelines(f"{', ' * (i > 0)}{text}" for i in range(n))
        file.write('], "itls": [')
        file.writelines(f"{', ' * (i > 0)}{gaps}" for i in range(n))
        file.write("]}")
    assert path.stat().st_size > 180e6
    code = (
        "import resource, sys; sys.argv = ['specbench', 'import', sys.argv[1], '-o', sys.argv[2]]\n"
        "from specbench.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "own = [line for line in open('/proc/self/status') if line.startswith('RssAnon')]\n"
        "print(int(own[0].split()[1]) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout.splitlines()[-1]) < 250
    with (tmp_path / "out" / "summary.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["latency_ms"]) == pytest.approx(12.3456789 * 1200 / 999, rel=1e-9)


def test_report_shows_an_imported_folder_again(imported, specbench):
    *_, out, folder = imported(json.dumps(SERVED))
    code, again, err = specbench("report", folder)
    assert (code, err) == (0, "")
    assert again.splitlines()[:4] == out.splitlines()[:4]
    told = (folder / "report.md").read_text()
    assert "Imported from vllm bench serve" in told
    assert "steps without one are left out" in told
    rows = json.loads(specbench("report", folder, "--format", "json")[1])
    assert (rows[0]["alpha"], rows[0]["temperature"], rows[0]["verdict"]) == (
        near(0.65), None, ""
    )  # fmt: skip
    assert specbench("report", folder, "--chart")[0] == 2


def test_plain_decoding_of_another_model_is_no_baseline(specbench, tmp_path):
    (tmp_path / "a.json").write_text(served(model_id="meta/x"))
    (tmp_path / "b.json").write_text(json.dumps(PLAIN | {"model_id": "other/model"}))
    flags = ("--baseline", tmp_path / "b.json", "-o", tmp_path / "out")
    done = specbench("import", tmp_path / "a.json", *flags)
    assert done[0] == 2
    assert "is of other/model, and the drafts are of meta/x" in " ".join(done[2].split())
    assert specbench("import", tmp_path / "a.json", *flags, "--target", "x")[0] == 0
