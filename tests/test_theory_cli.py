"""`specbench theory` as a user meets it: text, files, refusals, weight."""

import csv
import io
import json
import os
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

from specbench.cli import main
from specbench.closed_form import theory
from specbench.version import VERSION

ROOT = Path(__file__).parents[1]
COLUMNS = (
    "alpha,gamma,tau,variance,accepted_per_drafted,full_accept,speedup,breakeven_alpha,best_gamma"
)


@pytest.fixture
def specbench(monkeypatch, capsys):
    """Run the program in this process: exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["specbench", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, *capsys.readouterr()

    return call


def process(*arguments, **environment):
    code = "from specbench.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        check=False,
    )


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_table(specbench):
    code, out, err = specbench("theory", "-a", "0.808", "-g", "7-8", "-c", "0.067", "-v", "1.3")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == ["α 0.808, c 0.067, v 1.30 for every γ", ""]
    assert lines[2].split("  ")[0] == " γ"
    assert lines[3] == "─" * 78
    assert lines[4:6] == [
        " 7  4.262         2.613             0.466     0.225     2.41             0.435",
        "*8  4.444         2.887             0.430     0.182     2.42             0.456",
    ]
    assert lines[7] == (
        "Best γ is 8: 2.42× if kept drafts are independent and all time is in the models."
    )


def test_several_alphas_get_a_table_each(specbench):
    _, out, _ = specbench("theory", "--alpha", "0.5,7/10", "--gamma", "1")
    assert "α 0.5\n" in out
    assert "α 7/10\n" in out
    assert out.count("For speedup, best γ and break-even α add --cost-ratio.") == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("-a 0.9 -g 1-4 -c 0.067", "Best γ is 12, not shown here: 4.13×"),
        ("-a 0.9 -g 1-4 -c 0.067", "The best shown is γ 4: 3.23×."),
        ("-a 0.5 -g 2 -c 0", "There is no finite best γ: each further draft still gains."),
        ("-a 0.3 -g 1-2 -c 0.5", "No γ pays: plain decoding is best. γ 1 would pay above α 0.500."),
        ("-a 0.9 -g 1 -c 2", "At this cost no α makes a γ shown here pay."),
    ],
)
def test_closing_sentences(specbench, arguments, sentence):
    code, out, _ = specbench("theory", *arguments.split())
    assert code == 0
    assert sentence in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_a_cost_that_no_alpha_pays_reads_never(specbench):
    _, out, _ = specbench("theory", "-a", "0.9", "-g", "0,1", "-c", "2")
    plain, drafted = (line.split() for line in out.splitlines()[4:6])
    assert plain == ["*0", "1.000", "0.000", "1.00"]
    assert drafted == ["1", "1.900", "0.300", "0.900", "0.900", "0.63", "never"]


def test_without_a_cost_no_row_is_best(specbench):
    _, out, _ = specbench("theory", "-a", "0.9", "-g", "0,1")
    assert "*" not in out


def test_narrow_terminals_get_records(specbench, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    _, out, _ = specbench("theory", "-a", "0.8", "-g", "1-2", "-c", "0.1")
    assert "γ: *2\nτ: 2.440\nsd per cycle: 0.804\n" in out


def test_inverse(specbench):
    _, out, _ = specbench("theory", "--tau", "2.605", "--gamma", "3")
    assert out == (
        "α = 0.718 gives τ 2.605 at γ 3.\n"
        "accepted/drafted is 0.535. That is not α: put in the formula it gives τ 1.97.\n"
    )
    _, out, _ = specbench("theory", "--tau", "1.5", "--gamma", "1", "-c", "0.25")
    assert out == (
        "α = 0.500 gives τ 1.50 at γ 1.\n"
        "accepted/drafted is 0.500, here the same as α.\n"
        "c 0.250, v 1.00: 1.20× if all time is in the models\n"
    )


def test_trace(specbench):
    _, out, _ = specbench("theory", "--accepted", "4,0,2", "--gamma", "4")
    assert out == (
        "3 cycles, 9 tokens: τ 3.00, α 6/8 = 0.750 (tested positions only)\n"
        "closed form at this α 3.05, gap −0.05: 1/3 of cycles kept all, 0.316 expected\n"
        "too few cycles for an interval\n"
    )
    _, out, _ = specbench("theory", "--accepted", "0", "--gamma", "0")
    assert out == "1 cycle, 1 token: τ 1.00, nothing was drafted\n"


def test_csv_has_full_precision(specbench):
    code, out, _ = specbench(
        "theory", "-a", "0.7,4/5", "-g", "0,5", "-c", "0.05", "-v", "1.1", "--format", "csv"
    )
    assert code == 0
    assert out.splitlines()[0] == COLUMNS
    rows = table(out)
    keys = [(row["alpha"], row["gamma"]) for row in rows]
    assert keys == [("0.7", "0"), ("0.7", "5"), ("0.8", "0"), ("0.8", "5")]
    last = rows[-1]
    exact = Fraction(4, 5)
    assert float(last["tau"]) == theory.tau(exact, 5)
    assert float(last["speedup"]) == theory.speedup(exact, 5, 0.05, 1.1)
    assert float(last["breakeven_alpha"]) == theory.breakeven_alpha(5, 0.05, 1.1)
    assert int(last["best_gamma"]) == theory.optimal_gamma(exact, 0.05, 1.1)
    assert rows[0]["accepted_per_drafted"] == rows[0]["breakeven_alpha"] == ""


def test_v_is_1_where_only_c_is_given(specbench):
    _, bare, _ = specbench("theory", "-a", "0.8", "-g", "3", "-c", "0.1", "--format", "csv")
    _, with_v, _ = specbench(
        "theory", "-a", "0.8", "-g", "3", "-c", "0.1", "-v", "1", "--format", "csv"
    )
    assert bare == with_v


def test_cells_are_empty_where_there_is_no_value(specbench):
    _, out, err = specbench("theory", "-a", "0.8", "-g", "3", "-v", "1.1", "--format", "csv")
    assert out.splitlines()[1].endswith(",0.512,,,")
    assert err == "note: --verify-ratio gives no speedup without --cost-ratio\n"
    _, out, _ = specbench("theory", "-a", "0.8", "-g", "3", "-c", "0", "--format", "csv")
    assert table(out)[0]["best_gamma"] == ""
    _, out, _ = specbench("theory", "-a", "0.8", "-g", "3", "-c", "2", "--format", "csv")
    assert (table(out)[0]["breakeven_alpha"], table(out)[0]["best_gamma"]) == ("", "0")


def test_json_and_markdown_hold_the_same_rows(specbench):
    arguments = ("theory", "-a", "0.8", "-g", "0,3", "--format")
    rows = json.loads(specbench(*arguments, "json")[1])
    assert ",".join(rows[0]) == COLUMNS
    assert rows[0]["accepted_per_drafted"] is rows[1]["speedup"] is None
    head, rule, *body = specbench(*arguments, "md")[1].splitlines()
    assert head == f"| {COLUMNS.replace(',', ' | ')} |"
    assert rule.count("--:") == len(rows[0])
    assert body[1].startswith(f"| 0.8 | 3 | {theory.tau(Fraction(4, 5), 3)!r} |")


def test_tau_and_trace_as_csv(specbench):
    _, out, _ = specbench("theory", "--tau", "2", "-g", "2", "--format", "csv")
    assert float(table(out)[0]["alpha"]) == theory.alpha_from_tau(2.0, 2)
    _, out, _ = specbench("theory", "--accepted", "4,0,2", "-g", "4", "--format", "csv")
    (row,) = table(out)
    assert (row["num_tested"], row["alpha"], row["tau"]) == ("8", "0.75", "3.0")
    assert float(row["tau_gap"]) == -13 / 256


def test_one_minus_alpha_keeps_its_digits(specbench):
    _, out, _ = specbench("theory", "--one-minus-alpha", "1e-20", "-g", "5", "--format", "csv")
    assert float(table(out)[0]["variance"]) == pytest.approx(55e-20, rel=1e-15)
    _, out, _ = specbench("theory", "--one-minus-alpha", "1/5", "-g", "5", "--format", "csv")
    assert out == specbench("theory", "-a", "0.8", "-g", "5", "--format", "csv")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-a", "nan"], '--alpha "nan": not a finite number; allowed is from 0 to 1'),
        (["-a", "inf"], '--alpha "inf": not a finite number; allowed is from 0 to 1'),
        (["-a", "1/0"], '--alpha "1/0": not a finite number; allowed is from 0 to 1'),
        (["-a", "80"], '--alpha "80": allowed is from 0 to 1'),
        (["-a", "-0.1"], '--alpha "-0.1": allowed is from 0 to 1'),
        (["-a", "0.8,"], '--alpha "0.8,": empty item after the first comma'),
        (["--one-minus-alpha", "2"], '--one-minus-alpha "2": allowed is from 0 to 1'),
        (["-a", "0.8", "-g", "-1"], '--gamma "-1": -1 is below 0'),
        (["-a", "0.8", "-c", "-1"], '--cost-ratio "-1": allowed is 0 or more'),
        (["-a", "0.8", "-c", "1e400"], '--cost-ratio "1e400": allowed is 0 or more'),
        (["-a", "0.8", "-c", "1", "-v", "0"], '--verify-ratio "0": allowed is above 0'),
        (["--tau", "5", "-g", "3"], '--tau "5": allowed is from 1 to γ + 1, here 4'),
        (["--tau", "3", "-g", "1,3"], '--tau "3": allowed is from 1 to γ + 1, here 2'),
        (["--tau", "1", "-g", "0"], "--gamma 0 drafts nothing"),
        (["--tau", "2"], "--tau needs --gamma"),
        (["--accepted", "1,5", "-g", "4"], '"5" is not a whole number from 0 to γ, here 4'),
        (["--accepted", "1,-1", "-g", "4"], '"-1" is not a whole number from 0 to γ, here 4'),
        (["--accepted", "1", "-g", "1-4"], "--accepted needs one --gamma, not 4"),
        (["-a", "0.8", "--tau", "2"], "--alpha and --tau cannot be given together"),
        ([], "theory needs --alpha, --one-minus-alpha, --tau, --accepted or --counters"),
        (["-a", "0.8", "--format", "xml"], '--format "xml": no such format'),
    ],
)
def test_refusals(specbench, arguments, message):
    code, out, err = specbench("theory", *arguments)
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert second.startswith("  try    ")


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["specbench", "theory", "--debug", "--alpha", "2"])
    with pytest.raises(Exception, match="allowed is from 0 to 1"):
        main()


def test_unknown_flags_end_in_2_and_version_in_0(specbench):
    assert specbench("theory", "--nonsense")[0] == 2
    assert specbench("--version") == (0, f"specbench {VERSION}\n", "")


def test_streams_that_cannot_encode_the_signs_get_ascii():
    done = process(
        "theory", "-a", "0.808", "-g", "8", "-c", "0.067", PYTHONIOENCODING="ascii", COLUMNS="80"
    )
    assert done.returncode == 0
    lines = done.stdout.decode("ascii").splitlines()
    assert lines[0] == "alpha 0.808, c 0.067, v 1.00 for every gamma"
    assert lines[2].startswith(" g    tau  sd per cycle")
    assert lines[2].endswith("break-even alpha")
    assert lines[3] == "-" * 78
    assert lines[4].startswith("*8  4.444")
    done = process("theory", "--accepted", "4,0,2", "-g", "4", PYTHONIOENCODING="cp1252")
    assert b"gap -0.05" in done.stdout
    done = process("theory", "--help", PYTHONIOENCODING="ascii")
    assert b"break-even alpha" in done.stdout
    done = process("theory", "--tau", "9", "-g", "3", PYTHONIOENCODING="ascii")
    assert b"from 1 to gamma + 1, here 4" in done.stderr


def test_colour_only_where_it_is_wanted():
    arguments = ("theory", "-a", "0.808", "-g", "7-8", "-c", "0.067")
    assert b"\x1b" not in process(*arguments).stdout
    assert b"\x1b[1;36m*" in process(*arguments, FORCE_COLOR="1", TERM="xterm").stdout
    plain = process(*arguments, "--no-color", FORCE_COLOR="1", TERM="xterm").stdout
    assert b"36m" not in plain


def test_nothing_heavy_is_imported_and_it_is_quick():
    code = (
        "import sys, time; sys.argv = ['specbench', 'theory', '-a', '0.8', '-c', '0.1']\n"
        "from specbench.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "heavy = {'torch', 'transformers', 'pandas', 'matplotlib', 'scipy', 'datasets'}\n"
        "print(sorted(heavy & set(sys.modules)), time.process_time())\n"
    )
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    heavy, seconds = done.stdout.splitlines()[-1].rsplit(" ", 1)
    assert heavy == "[]"
    assert float(seconds) < 1.0
    assert time.perf_counter() - start < 10.0
