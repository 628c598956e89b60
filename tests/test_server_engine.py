"""`--engine server` from the command line to the files, against servers that replay a plan."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import models
import pytest
from cli_runs import cell, lines, measure, refused, specbench

from specbench.serving.transport import address_of, get_json
from tests.served import serving

PLAN = ((3, 2), (3, 0), (3, 3))
"""Steps that emit 3, 1 and 4 tokens: 15 cycles of the 39 tokens behind the first one of 40."""
TOKENS = 40


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target whose tokenizer makes the prompts; its weights are the servers' affair."""
    at = tmp_path_factory.mktemp("served")
    models.save(models.build(), at / "toy")
    lines(at / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w3 w7 w8", "w11 w12")
    return at


def run(at: Path, *more: object, out: str, draft: object = "", code: int = 0) -> str:
    """Measure without a report; what stderr got."""
    how = ("-g", 3, "--max-new-tokens", TOKENS, "--temperature", 0, "--engine", "server")
    return measure(
        at / out, at / "toy", [draft or at / "toy"], at / "p.txt", *how, *more, code=code
    )


def arguments(*given: str) -> list[str]:
    return [word for one in given for word in ("--engine-arg", one)]


def measured(at: Path, out: str, *more: str, draft: str = "", **about: Any) -> dict[str, str]:
    """The row of γ = 3 of a run against a server with a plan, and one without drafts."""
    tool = about.pop("tool", "vllm")
    with serving(tool=tool, gamma=0) as plain, serving(tool=tool, plan=PLAN, **about) as drafts:
        urls = arguments(f"url.0={plain.url}", f"url.3={drafts.url}/v1")
        run(at, *urls, *more, out=out, draft=draft)
    return cell(at / out, 3)


def check_by_hand(row: dict[str, str], times: int = 4) -> None:
    """Fifteen cycles a prompt, five rounds of the plan, counted by hand."""
    told = {"num_output_tokens": 40, "num_cycles": 15, "num_drafted": 45, "num_accepted": 25}
    for name, number in told.items():
        assert int(row[name]) == times * number, name
    assert float(row["tau"]) == pytest.approx(40 / 15)
    assert float(row["tau_delivered"]) == pytest.approx(39 / 15)
    assert float(row["accepted_per_drafted"]) == pytest.approx(25 / 45)


@pytest.mark.parametrize("batch", ["1", "2", "4"])
def test_counters_of_vllm_become_columns_whatever_the_batch(at: Path, batch: str) -> None:
    row = measured(at, f"vllm{batch}", "--batch-size", batch)
    check_by_hand(row)
    # Of each round: 3 + 1 + 3 tests, 2 + 0 + 3 kept.
    assert (row["alpha_kind"], float(row["alpha"])) == ("positions", pytest.approx(5 / 7))
    assert float(row["ttft_ms"]) > 0
    assert float(row["latency_ms"]) > 0
    assert (row["engine"], row["verify_rule"]) == ("server", "of vllm")
    assert (row["t_draft_ms"], row["t_verify_ms"], row["cost_ratio"]) == ("", "", "")


def test_block_of_a_request_serves_where_metrics_are_disabled(at: Path) -> None:
    row = measured(at, "block", block="lengths", metrics=False)
    check_by_hand(row)
    assert row["alpha_kind"] == "positions"


def test_without_any_count_acceptance_is_empty_and_times_stay(at: Path) -> None:
    with serving(gamma=0) as plain, serving(plan=PLAN, metrics=False) as drafts:
        urls = arguments(f"url.0={plain.url}", f"url.3={drafts.url}")
        assert "no counts of drafts" in run(at, *urls, out="none")
    told = specbench("report", at / "none").err
    assert "no counts of drafts: neither" in told.partition("note W23:")[2]
    for name in ("report.md", "report.html", "run.json"):
        assert "no counts of drafts: neither the answers" in (at / "none" / name).read_text(), name
    row = cell(at / "none", 3)
    for name in ("alpha", "tau", "num_cycles", "num_accepted", "alpha_kind", "tau_gap"):
        assert row[name] == "", name
    assert float(row["latency_ms"]) > 0
    assert float(row["speedup"]) > 0
    assert row["num_output_tokens"] == "160"


def test_a_baseline_that_speculates_is_named_as_one(at: Path) -> None:
    """Answers that tell of no draft, metrics that do."""
    with serving(plan=PLAN) as wrong, serving(plan=PLAN) as drafts:
        urls = arguments(f"url.0={wrong.url}", f"url.3={drafts.url}")
        said = run(at, *urls, out="wrong", code=1)
    rows = (at / "wrong" / "generations.csv").read_text()
    assert "the baseline's server, of gamma 0, drafted" in rows
    assert "it must be started without speculation" in rows
    assert "its answers tell of 0 tokens" not in rows + said


def test_sglang_tells_steps_alone_so_alpha_is_inverted(at: Path) -> None:
    row = measured(at, "sglang", tool="sglang")
    check_by_hand(row)
    assert row["alpha_kind"] == "inverted"
    # The α at which 1 + α + α² + α³ is 40/15.
    alpha = float(row["alpha"])
    assert 1 + alpha + alpha**2 + alpha**3 == pytest.approx(40 / 15)


def test_lookup_drafts_are_ratios_of_totals(at: Path) -> None:
    row = measured(at, "ngram", draft="ngram")
    check_by_hand(row)
    assert (row["tau_gap"], row["tau_closed_form"]) == ("", "")


def test_llamacpp_answers_are_held_against_its_metrics(at: Path) -> None:
    with serving(tool="llamacpp", gamma=0) as plain, serving(tool="llamacpp", plan=PLAN) as drafts:
        urls = arguments(f"url.0={plain.url}", f"url.3={drafts.url}")
        run(at, *urls, out="llama")
    row = cell(at / "llama", 3)
    # It never drafts beyond the end: the last step of each text is cut to 3 tokens, and 2 drafts.
    assert (row["num_cycles"], row["num_drafted"], row["num_censored"]) == ("60", "176", "4")
    assert row["alpha_kind"] == "positions"


def test_text_and_number_of_tokens_stay_where_ids_are_not_told(at: Path) -> None:
    row = measured(at, "text", takes=("text",), ids=False)
    check_by_hand(row)
    with (at / "text" / "tokens.jsonl").open() as file:
        texts = [json.loads(line) for line in file]
    drafted = [one for one in texts if one["gamma"] == 3]
    assert len(drafted) == 4
    for one in drafted:
        assert (one["text"][:10], one["token_ids"]) == (" t101 t102", [])


def test_a_whole_run_reports_what_a_server_gave(at: Path) -> None:
    with serving(gamma=0) as plain, serving(plan=PLAN) as drafts:
        urls = arguments(f"url.0={plain.url}", f"url.3={drafts.url}")
        ran = specbench(*_words(at, "whole"), *urls)
    assert ran.code == 0, ran.err
    assert "engine server" in ran.out
    assert (at / "whole" / "report.html").is_file()
    known = json.loads((at / "whole" / "run.json").read_text())["engine"]["servers"]
    assert known["3"] == {
        "url": drafts.url, "model": "toy", "tool": "vllm", "api": "completions", "metrics": True,
    }  # fmt: skip


def reasons(folder: Path) -> set[str]:
    with (folder / "generations.csv").open(newline="") as file:
        return {row["reason"] for row in csv.DictReader(file) if row["gamma"] == "3"}


@pytest.mark.parametrize(
    ("about", "told"),
    [({"other_tokens": 7}, "another client uses it"), ({"cut_after": 3}, "after 5 of 40")],
)
def test_what_goes_wrong_is_a_reason_and_no_number(
    at: Path, about: dict[str, Any], told: str
) -> None:
    out, status = "-".join(about), "error"
    with serving(gamma=0) as plain, serving(plan=PLAN, **about) as drafts:
        urls = arguments(f"url.0={plain.url}", f"url.3={drafts.url}")
        run(at, *urls, out=out, code=1)
    assert any(told in reason for reason in reasons(at / out))
    assert cell(at / out, 3)["status"] == status
    assert cell(at / out, 0)["status"] == "ok"


def _words(at: Path, out: str) -> list[object]:
    return [
        *("run", "-t", at / "toy", "-d", at / "toy", "--dataset", at / "p.txt", "-g", "3"),
        *("--max-new-tokens", "40", "--temperature", "0", "--engine", "server", "-o", at / out),
    ]


def test_a_server_of_another_gamma_is_found_out_before_anything_is_measured(at: Path) -> None:
    with serving(gamma=0) as plain, serving(plan=((5, 2),), gamma=5) as drafts:
        urls = arguments(f"url.0={plain.url}", f"url.3={drafts.url}")
        told = refused(*_words(at, "five"), *urls)
    assert "no server of gamma 3" in told[0]


def test_a_baseline_that_drafts_is_refused(at: Path) -> None:
    with serving(plan=PLAN) as drafts:
        urls = arguments(f"url.0={drafts.url}", f"url.3={drafts.url}")
        run(at, *urls, out="no-baseline", code=1)
    assert cell(at / "no-baseline", 0)["status"] == "refused"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "no server for gamma 0, 3"),
        (["url=http://127.0.0.1:9"], "no server for gamma 0, 3"),
        (["url.0=http://127.0.0.1:9"], "no server for gamma 3"),
        (["url.x=http://127.0.0.1:9"], "no gamma"),
        (["urls=x"], "no such argument"),
        (["url.0=ftp://a", "url.3=http://a"], "no http URL"),
        (["url.0=http://127.0.0.1:9", "url.3=http://127.0.0.1:9"], "cannot be reached"),
        (["restart=./serve.sh"], "where the server is"),
        (["url=http://127.0.0.1:9", "restart=./serve.sh"], "which gamma"),
        (["url=http://127.0.0.1:9", "restart='./a {gamma}"], "quotation"),
        (["timeout=0"], "a whole number from 1"),
        (["api_key_env=NO_SUCH_VARIABLE"], "is not set"),
        (["api_key_env=sk-4711"], "no name of an environment variable"),
        (["api_key_env=BROKEN_KEY"], "no header can carry"),
        (["url.0=http://a", "url.3=http://a", "url=http://b"], "it is for no gamma"),
        (["url="], "the value is empty"),
    ],
)
def test_arguments_are_refused_in_a_sentence(
    at: Path, given: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN_KEY", "sk-4711\nX: y")
    lines = refused(*_words(at, "never"), *arguments(*given))
    assert any(told in line for line in lines)
    assert not any("sk-4711" in line for line in lines)
    assert not (at / "never").exists()


def test_another_model_is_refused_by_name(at: Path) -> None:
    with serving(model="other") as served:
        urls = arguments(f"url.0={served.url}", f"url.3={served.url}")
        told = refused(*_words(at, "never"), *urls)
    assert "serves other, and not toy" in told[0]


RESTART = """
import json, sys, urllib.request
gamma = int(sys.argv[1])
body = json.dumps({"gamma": gamma}).encode()
urllib.request.urlopen(urllib.request.Request(sys.argv[2] + "/control", body)).read()
sys.exit(int(gamma == 9))
"""


def test_a_restart_per_gamma_measures_one_gamma_after_another(at: Path) -> None:
    script = at / "restart.py"
    script.write_text(RESTART)
    with serving(plan=PLAN) as served:
        command = f"restart={sys.executable} {script} {{gamma}} {served.url}"
        given = arguments(f"url={served.url}", command)
        run(at, *given, out="restart")
        check_by_hand(cell(at / "restart", 3))
        # For the check of the pair, which is measured first as it is there already, then once more.
        assert served.restarts == [3, 0]
        told = refused(*_words(at, "never"), *given, "-g", 9)
    assert "restart for gamma 9 ended with code 1" in told[0]


def test_servers_have_one_draft_so_two_are_refused(at: Path) -> None:
    with serving() as served:
        urls = arguments(f"url.0={served.url}", f"url.3={served.url}")
        told = refused(*_words(at, "never"), *urls, "-d", "ngram")
    assert "the servers have one draft, and ngram would be another" in told[0]


def test_the_key_goes_to_the_server_and_into_no_file(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_KEY", "secret-of-mine")
    measured(at, "key", *arguments("api_key_env=SERVER_KEY"))
    for path in (at / "key").rglob("*"):
        assert path.is_dir() or b"secret-of-mine" not in path.read_bytes(), path


def test_a_url_may_end_in_v1() -> None:
    with serving() as served:
        assert get_json(address_of(f"{served.url}/v1", "x"), "/v1/models")["data"]
