"""Counters by the row: α by the best ground, notes, and what is refused."""

import doctest
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from test_published import PUBLISHED, inverse, near, specbench

from specbench.calculator import counter_law, counter_names

__all__ = ["specbench"]


ROOT = Path(__file__).parents[1]


@pytest.fixture
def asked(specbench, tmp_path):
    """The answer to one row that a user wrote."""

    def ask(text, *flags):
        path = tmp_path / "counters.csv"
        path.write_text(text, encoding="utf-8")
        code, out, err = specbench("--counters", str(path), "--format", "json", *flags)
        assert code == 0, err
        (row,) = json.loads(out)
        return row

    return ask


@pytest.mark.parametrize(
    ("text", "alpha", "kind"),
    [
        ("gamma,num_drafts,num_accepted_tokens,pos_0,pos_1\n2,4,5,3,2\n", 5 / 7, "positions"),
        ("gamma,num_drafts,num_accepted_tokens,pos_1\n2,4,5,3\n", 5 / 7, "positions"),
        ("gamma,cycles,accepted_per_position\n2,4,3/2\n", 5 / 7, "positions"),
        ("histogram\n1|1|2\n", 5 / 7, "positions"),
        ("gamma,num_cycles,num_accepted,num_full_accept\n2,4,5,2\n", 5 / 7, "counts"),
        ("num_tested,num_accepted\n7,5\n", 5 / 7, "counts"),
        ("gamma,num_drafts,num_accepted\n1,4,3\n", 3 / 4, "counts"),
        ("gamma,alpha,tau\n2,0.7,2.25\n", 0.7, "given"),
        ("k,mean acceptance length\n2,2.25\n", inverse(2.25, 2), "inverted"),
        ("gamma,acceptance_rate\n2,0.625\n", inverse(2.25, 2), "inverted"),
        ("num_drafts;num_draft_tokens;draft_n_accepted\n4;8;5\n", inverse(2.25, 2), "inverted"),
    ],
)
def test_alpha_by_the_best_ground_there_is(asked, text, alpha, kind):
    row = asked(text)
    assert row["alpha"] == near(alpha)
    assert row["alpha_kind"] == kind


def test_names_of_vllm_metrics(asked):
    names = [f"vllm:spec_decode_num_{n}_total" for n in ("drafts", "draft_tokens")]
    per = "vllm:spec_decode_num_accepted_tokens_per_pos_total{{position={}}}"
    header = ",".join([*names, per.format(0), per.format(1)])
    row = asked(f"# pasted\n\n{header}\n4,8,3,2\n")
    assert (row["alpha"], row["gamma"], row["num_tested"]) == (5 / 7, 2, 7)
    assert row["tau_gap_identity"] == pytest.approx(row["tau_gap"], abs=1e-15)


def test_accepted_over_drafted_is_not_taken_for_alpha(asked):
    row = asked("gamma,num_drafts,num_accepted,alpha\n4,100,160,0.4\n")
    assert (row["alpha_kind"], row["alpha"]) == ("inverted", near(inverse(2.6, 4)))
    assert "alpha 0.4 is accepted / drafted, which is not alpha" in row["note"]


def test_varying_draft_lengths_leave_alpha_empty(asked):
    row = asked("gamma,num_drafts,num_draft_tokens,num_accepted\n4,100,390,160\n")
    assert (row["alpha"], row["tau"], row["tau_closed_form"]) == (None, 2.6, None)
    assert "draft lengths vary" in row["note"]
    assert "alpha needs num_tested" in row["note"]


def test_flags_stand_in_where_a_row_has_none(asked):
    row = asked("acceptance_length\n2.25\n", "-g", "2", "-c", "0.1", "-v", "1.1")
    assert row["alpha"] == near(inverse(2.25, 2))
    assert row["speedup_formula"] == near(2.25 / 1.3)
    row = asked("gamma,acceptance_length\n3,2.25\n", "-g", "2")
    assert row["gamma"] == 3


def test_no_cycles_and_no_drafts_are_no_fault(asked):
    row = asked("gamma,num_drafts,num_accepted\n2,0,0\n")
    assert (row["alpha"], row["tau"], row["note"]) == (None, None, "no cycle was run")
    row = asked("gamma,t_verify_ms,baseline_latency_ms,latency_ms,speedup\n0,14,14,14,1.0\n")
    assert (row["tau"], row["latency_formula_ms"], row["note"]) == (1.0, 14.0, "")


def test_the_table_groups_what_rows_lack(specbench):
    code, out, err = specbench("--counters", str(PUBLISHED / "counter_fixtures.csv"))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["line", "row", "γ", "α", "from", "τ", "formula"]
    assert lines[4].split() == ["4", "vllm_pr_48915", "3", "0.200", "positions", "1.23", "1.25"]
    assert "lines 2, 7: alpha is inverted from tau" in out
    code, out, err = specbench("--counters", str(PUBLISHED / "magicdec_tables.csv"))
    assert "all rows: alpha is inverted from tau" in out
    assert err == "note: columns not used: L_pred_ms, overhead_pct, alpha_inverted\n"
    assert max(map(len, out.splitlines())) <= 100


def test_markdown_and_json_hold_the_same_rows(specbench):
    path = str(PUBLISHED / "vllm_acceptance_baselines.csv")
    rows = json.loads(specbench("--counters", path, "--format", "json")[1])
    head, _, *body = specbench("--counters", path, "--format", "md")[1].splitlines()
    assert head == f"| {' | '.join(rows[0])} |"
    assert len(body) == len(rows) == 4
    assert rows[0]["num_cycles"] is None


REFUSED = [
    ("", "is empty", ""),
    ("gamma,tau\n", "has a header and no row", ""),
    ("first,second\n1,2\n", "none of the columns is known: first, second", "line 1"),
    ("gamma,num_acepted_tokens\n2,3\n", 'unknown column "num_acepted_tokens"', "line 1, column"),
    ("gamma,tau,omega\n2,2,2\n", "tau and omega mean the same", "line 1, column omega"),
    ("gamma,tau\n2,2.1\n2,two\n", '"two" is no number', "line 3, column tau"),
    ("gamma,tau\n2,nan\n", '"nan" is no number', "line 2, column tau"),
    ("gamma,tau\n2\n", "1 fields instead of 2", "line 2"),
    ("gamma,tau\n2.5,2\n", '"2.5" is no whole number', "line 2, column gamma"),
    ("gamma,tau\n2000,2\n", '"2000" is above 1024', "line 2, column gamma"),
    ("gamma,tau\n2,0.9\n", '"0.9" is below 1', "line 2, column tau"),
    ("gamma,tau\n2,3.6\n", "3.6 exceeds gamma + 1, 3", "line 2, column tau"),
    ("num_drafts\n-5\n", '"-5" is below 0', "line 2, column num_drafts"),
    ("alpha\n62\n", '"62" is not from 0 to 1', "line 2, column alpha"),
    ("num_drafts,num_accepted_tokens\n0,5\n", "num_accepted_tokens is 5", "column num_accepted_t"),
    ("num_drafts,num_draft_tokens\n0,5\n", "5, num_drafts is 0", "column num_draft_tokens"),
    ("num_drafts,num_tested\n0,5\n", "num_tested is 5, num_drafts is 0", "column num_tested"),
    ("gamma,accepted\n0,5\n", "accepted is 5, gamma is 0", "line 2, column accepted"),
    ("num_drafts,pos_0\n0,0.5\n", "a share of 0.5 of 0 cycles", "line 2, column pos_0"),
    ("num_drafts\n1e30\n", '"1e30" is above 1000000000000000', "line 2, column num_drafts"),
    (f"num_drafts\n{'7' * 33}\n", "is above 1000000000000000", "line 2, column num_drafts"),
    (f"num_drafts\n{'7' * 99}\n", f'"{"7" * 39}…" is above 10', "line 2, column num_drafts"),
    ("k\n1e999\n", '"1e999" is above 1024', "line 2, column k"),
    ("cycles,pos_0\n9,1e40\n", '"1e+40" is above 1000000000000000', "line 2, column pos_0"),
    ("histogram\n1e40/1/2\n", '"1e+40" is above 1000000000000000', "line 2, column histogram"),
    ("pos_0,pos_00\n1,1\n", "pos_0 and pos_00 mean the same", "column pos_00"),
    ("pos_0,pos_1,position 1\n1,1,1\n", "pos_1 and position 1 mean the same", "column position 1"),
    ("cycles,drafted,pos_0,pos_1\n10,10,9,8\n", "position 2, gamma is 1", "column pos_1"),
    ("cycles,drafted,pos_0,pos_1\n10,10,.9,.8\n", "2 positions, gamma is 1", "column pos_1"),
    ("cycles,drafted,accepted,pos_0\n1,1e15,1,1\n", "exceeds 1024 × cycles, 1024", "drafted"),
    ("tau,tau\n1,1\n", "the column tau stands twice", "line 1, column tau"),
    ("alpha\n62%\n", '"62%" is no number', "line 2, column alpha"),
    ("tau,latency_ms\n2,0\n", '"0" is not above 0', "line 2, column latency_ms"),
    *(
        (f"tau,{name}\n2,{tiny}\n", f'"{tiny}" is below 1e-9', f"line 2, column {name}")
        for name in counter_names.ABOVE_ZERO
        for tiny in ("1e-400", "9.9e-10")
    ),
    ("draft_n,draft_n_accepted\n5,6\n", "draft_n_accepted 6 exceeds draft_n 5", "line 2, column"),
    ("gamma,num_drafts,accepted\n2,4,9\n", "9 exceeds gamma × num_drafts, 8", "column accepted"),
    ("cycles,pos_0,pos_1\n9,3,4\n", "4 cycles kept one draft more than 3 did", "column pos_1"),
    ("gamma,pos_0,pos_1\n2,0.70,0.80\n", "0.8 follows 0.7", "line 2, column pos_1"),
    ("gamma,pos_0,pos_2\n2,0.7,0.5\n", "a position is left out", "line 1"),
    ("cycles,accepted,pos_0\n9,5,3\n", "positions add up to 3, accepted is 5", "column pos_0"),
    ("cycles,histogram\n9,4|2\n", "the histogram gives num_cycles 6, the row says 9", "histogram"),
    ('gamma,tau\n2,"2\n', "no CSV record", "line 2"),
]


@pytest.mark.parametrize(("text", "what", "where"), REFUSED)
def test_refusals_name_file_line_and_column(specbench, tmp_path, text, what, where):
    path = tmp_path / "counters.csv"
    path.write_text(text, encoding="utf-8")
    code, out, err = specbench("--counters", str(path))
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert lines[0].startswith("error: ")
    assert what in lines[0]
    assert str(path) in err
    assert where in err
    assert lines[-1].startswith("  try    ")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("alpha\n62%\n", "a fraction, as 0.62"),
        ('alpha\n"0,62"\n', "a fraction, as 0.62"),
        ("gamma;acceptance_rate\n4;0,62\n", "a fraction, as 0.62"),
        ("gamma,alpha\n4,0,62\n", "a fraction, as 0.62"),
        ("pos_0\n62%\n", "a share as 0.62"),
        ("gamma;tau\n4;2,5\n", "a decimal point, as 2.5"),
        ('tau,note\n2,"a"b\n', "a quote inside a quoted field is written twice"),
        ('tau,note\n2,"a\n', "a quote that is never closed?"),
        (f'tau,note\n2,"a\n{"b" * 131072}\n', "a quote that is never closed?"),
        (f"tau,note\n2,{'b' * 131073}\n", "shorten the field, or leave its column out"),
    ],
)
def test_refusals_tell_what_to_write_instead(specbench, tmp_path, text, hint):
    path = tmp_path / "counters.csv"
    path.write_text(text, encoding="utf-8")
    code, _, err = specbench("--counters", str(path))
    assert code == 2
    assert len(err) < 1000
    assert hint in err.splitlines()[-1]


def test_a_field_beyond_the_reader_is_told_so(specbench, tmp_path):
    path = tmp_path / "counters.csv"
    path.write_text(f"tau,note\n2,\n2,{'b' * 131073}\n", encoding="utf-8")
    _, _, err = specbench("--counters", str(path))
    assert err.startswith("error: a field of more than 131072 characters\n")
    assert "line 3" in err


@pytest.mark.parametrize(
    "text",
    [
        "gamma,tau,t_draft_ms,t_verify_ms,latency_ms,baseline_latency_ms\n4,2.5,0,1e-9,3,10\n",
        "gamma,tau,baseline_latency_ms,latency_ms\n4,2.5,1e-9,1e-9\n",
        "gamma,tau,cost_ratio,verify_ratio,speedup\n4,2,1e-400,1e-9,3\n",
        "gamma,tau,t_draft_step_ms,t_verify_ms,latency_ms\n4,2,1e-400,1e9,1e-9\n",
        "alpha,cost_ratio,speedup\n1e-400,1e-400,1e9\n",
        "gamma,alpha,cost_ratio\n4,0.5,0e999\n",
        "gamma,cycles,pos_0,pos_1\n2,10,1e-400,1e-400\n",
        "gamma,acceptance_rate\n4,1e-400\n",
    ],
)
def test_values_at_the_ends_of_what_is_allowed_give_finite_numbers(asked, text):
    numbers = [value for value in asked(text).values() if isinstance(value, float)]
    assert numbers
    assert all(map(math.isfinite, numbers))


@pytest.mark.parametrize(
    "note",
    [
        "mean per position 3.5 tokens kept",
        "per position 4 tokens kept",
        "per position 66%/36%/17%",
        "per position 66/36/17 %",
        "per position ..",
        "histogram 3 bins",
        "histogram 39/1/0/3xx (cut)",
    ],
)
def test_a_note_in_free_words_is_left_alone(asked, note):
    row = asked(f"gamma,num_drafts,num_accepted,note\n3,10,20,{note}\n")
    plain = asked("gamma,num_drafts,num_accepted\n3,10,20\n")
    assert {**row, "label": ""} == plain


@pytest.mark.parametrize(
    ("header", "row", "note", "reason"),
    [
        ("gamma,num_drafts,accepted", "3,10,20", "per position 3.5/2", "neither a count nor a sh"),
        ("gamma,num_drafts,accepted", "3,10,20", "per position 12/5/3", "12 cycles kept the first"),
        ("gamma,num_drafts,accepted", "3,10,20", "per position .3/.5", "0.5 follows 0.3"),
        ("gamma,num_drafts,accepted", "3,10,20", "histogram 5/4", "gives num_cycles 9"),
        ("gamma,num_drafts,accepted", "3,10,20", "histogram 0.9/0.1", "neither a count nor a sh"),
        ("gamma,num_drafts,accepted", "3,10,20", f"histogram {'9' * 33}/1", "is above 10000"),
        ("num_drafted,tested", "20,9", "per position 9/8/7", "exceeds num_drafted 20"),
        ("tau,tested", "3.5,9", "per position .9/.8", "3.5 exceeds gamma + 1, 3"),
    ],
)
def test_a_note_that_the_row_contradicts_is_not_used(asked, header, row, note, reason):
    found = asked(f"{header},note\n{row},{note}\n")
    plain = asked(f"{header}\n{row}\n")
    remark, _, others = found["note"].partition("; ")
    assert remark.startswith("note not read as counters: ")
    assert reason in remark
    assert {**found, "label": "", "note": others} == plain


def test_a_note_of_one_position_is_read_where_gamma_is_1(asked):
    row = asked("gamma,num_drafts,note\n1,4,per position 3.\n")
    assert (row["alpha"], row["tau"]) == (0.75, 1.75)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("gamma,cycles,accepted_per_position\n4,10,9/8/7\n", "position 4 is missing"),
        ("gamma,accepted_per_position\n4,.9/.8/.7\n", "position 4 is missing"),
        ("gamma,cycles,pos_0,pos_1\n4,10,9,8\n", "positions 3 to 4 are missing"),
        ("gamma,cycles,accepted,pos_0\n4,10,20,9\n", "positions 2 to 3 are missing"),
        ("gamma,cycles,tau,note\n4,10,3,per position .9/.8\n", "position 3 is missing"),
        ("cycles,drafted,pos_0,pos_1\n10,40,9,8\n", "positions 3 to 4 are missing"),
    ],
)
def test_missing_positions_are_named(asked, text, missing):
    row = asked(text)
    assert missing in row["note"]
    assert row["alpha_kind"] in (None, "inverted")


@pytest.mark.parametrize(
    "text",
    [
        "gamma,cycles,accepted_per_position\n4,10,9/3/0\n",
        "gamma,cycles,accepted,accepted_per_position\n4,10,12,9/3\n",
        "gamma,histogram\n4,1/6/3\n",
    ],
)
def test_positions_after_one_that_no_cycle_kept_are_0(asked, text):
    """9 of 10 cycles kept one draft, 3 two, none three: 12 kept in 10 + 9 + 3 + 0 tests."""
    row = asked(text)
    assert (row["alpha"], row["alpha_kind"], row["note"]) == (near(12 / 22), "positions", "")
    assert row["tau_gap_identity"] == near(row["tau_gap"])


def test_files_that_cannot_be_read(specbench, tmp_path):
    code, _, err = specbench("--counters", str(tmp_path / "absent.csv"))
    assert (code, err.splitlines()[0]) == (2, f"error: no file {tmp_path / 'absent.csv'}")
    assert specbench("--counters", str(tmp_path))[0] == 2
    (tmp_path / "latin.csv").write_bytes(b"gamma,tau,note\n2,2,\xe9\n")
    code, _, err = specbench("--counters", str(tmp_path / "latin.csv"))
    assert (code, "latin.csv, line 2" in err) == (2, True)
    code, _, err = specbench("--counters", "x.csv", "--alpha", "0.8")
    assert "--alpha and --counters cannot be given together" in err
    code, _, err = specbench("--counters", "x.csv", "-g", "1-4")
    assert "--counters needs one --gamma, not 4" in err


def test_stdin_and_nothing_heavy_is_imported():
    code = (
        "import sys; sys.argv = ['specbench', 'theory', '--counters', '-']\n"
        "from specbench.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "heavy = {'torch', 'transformers', 'pandas', 'matplotlib', 'scipy', 'datasets'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=b"gamma,num_drafts,num_accepted\n1,4,3\n",
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    lines = done.stdout.decode().splitlines()
    assert lines[2].split() == ["2", "1", "0.750", "counts", "1.75", "1.75"]
    assert lines[-1] == "[]"


def test_stdin_that_is_closed_is_told_so():
    code = (
        "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, '-c',"
        "'import sys; sys.argv = [\\'specbench\\', \\'theory\\', \\'--counters\\', \\'-\\'];'"
        "'from specbench.cli import main; main()'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    lines = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout, lines[0]) == (2, b"", "error: stdin is closed")
    assert lines[-1].startswith("  try    ")


def test_examples():
    found = doctest.testmod(counter_law)
    assert found.failed == 0
    assert found.attempted
