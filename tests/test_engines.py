"""Engines: the table, what each is refused, and results of one that gives counts alone."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import models
import pytest
from cli_runs import lines, refused, specbench, summary

from specbench import engine_table
from specbench.closed_form.inverse_law import alpha_from_tau
from specbench.engine_table import ENGINES, EngineRow
from specbench.engines.torch_engine import TorchEngine
from specbench.errors import UsageError
from specbench.records import Cell, Counts, Generation, Prompt
from specbench.result_files.rows import by_place, generation_sums
from specbench.settings.engine_limits import arguments_of, by_engine, refuse_unable
from specbench.settings.recipe import Recipe, canonical, default_recipe, merge_flags, recipe_from

NARROW = EngineRow(
    "narrow",
    "little",
    "–",
    "test_engines:Counting",
    drafts=("hf",),
    batches=False,
    sampled=False,
    dtypes=("float32",),
    cycles=False,
    options=("positions",),
)


class Counting(TorchEngine):
    """Our own loop that keeps its cycles to itself, and gives what a server would."""

    name = "narrow"

    def generate(self, cell: Cell, prompts: Sequence[Prompt], repeat: int) -> list[Generation]:
        return [self._counted(one, cell.gamma) for one in super().generate(cell, prompts, repeat)]

    def _counted(self, one: Generation, gamma: int) -> Generation:
        sums = generation_sums(one, gamma)
        known = ["num_cycles", "num_drafted", "num_accepted"]
        positions: tuple[tuple[int, int], ...] = ()
        if dict(self.settings.arguments).get("positions") == "yes":
            known.append("num_tested")
            positions = tuple(by_place(one, gamma))
        first, *later = one.cycles
        counts = Counts(
            **{name: int(sums[name] or 0) for name in known},
            positions=positions,
            timed_tokens=len(one.token_ids) - first.num_delivered,
            live_s=sum(c.seconds for c in later),
            share_s=sum(c.seconds for c in later),
        )
        prefill = one.prefill_s + first.seconds
        return replace(one, cycles=(), counts=counts, prefill_s=prefill)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> EngineRow:
    monkeypatch.setitem(ENGINES, "narrow", NARROW)
    return NARROW


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair in float32 and prompts."""
    at = tmp_path_factory.mktemp("pair")
    models.save(models.build(), at / "t")
    models.save(models.noisy(models.build(), 0.1), at / "d")
    lines(at / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w3 w7 w8", "w11 w12")
    return at


def asked(**flags: Any) -> Recipe:
    return merge_flags(default_recipe(), {"temperature": "0", **flags})


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "generations.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def told(at: Path, out: Path, engine: str, *more: str) -> dict[str, str]:
    """A run's row at γ = 3."""
    how = ["-g", "3", "--max-new-tokens", "16", "--temperature", "0", "--threads", "1"]
    words = ["run", "-t", at / "t", "-d", at / "d", "--dataset", at / "p.txt", *how, "-o", out]
    ran = specbench(*words, "--engine", engine, *more)
    assert ran.code == 0, ran.err
    return next(row for row in summary(out) if row["gamma"] == "3" and row["category"] == "all")


def test_each_row_names_a_class_that_is_there() -> None:
    from importlib import import_module

    for row in engine_table.ENGINES.values():
        module, _, name = row.loads.partition(":")
        assert getattr(import_module(module), name).name == row.name


def test_an_engine_of_another_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError) as err:
        asked(engine="toch")
    assert err.value.what == '--engine: "toch" is not known; did you mean torch?'
    with pytest.raises(UsageError, match=r'measure.engine: "vllmm" is not known'):
        recipe_from({"target": "embedded", "measure": {"engine": ["torch", "vllmm"]}})


def test_one_engine_stays_one_word_in_run_json(narrow: EngineRow) -> None:
    assert canonical(asked())["measure"]["engine"] == "torch"
    assert "engine_args" not in canonical(asked())["measure"]
    two = canonical(asked(engine="torch,narrow", engine_arg=["positions=yes,no"]))["measure"]
    assert (two["engine"], two["engine_args"]) == (["torch", "narrow"], ["positions=yes,no"])
    assert recipe_from({"measure": two}).measure.engine == ("torch", "narrow")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"draft": ["ngram"]}, "no draft of kind ngram (ngram)"),
        ({"batch_size": "1,4"}, "one prompt at a time"),
        ({"temperature": "0,1"}, "greedy decoding alone"),
        ({"dtype": "bfloat16"}, "no --dtype bfloat16"),
        ({"draft_dtype": "float64"}, "no --draft-dtype float64"),
        ({"forward": "packed"}, "no forward mode packed, it has its own"),
    ],
)
def test_what_an_engine_cannot_do_is_named(
    narrow: EngineRow, flags: dict[str, Any], said: str
) -> None:
    recipe = asked(engine="torch,narrow", **flags)
    with pytest.raises(UsageError) as err:
        refuse_unable(recipe)
    assert err.value.what == f"--engine narrow: {said}"
    assert err.value.hint


def test_arguments_go_to_the_engine_that_takes_them(narrow: EngineRow) -> None:
    recipe = asked(engine="torch,narrow", engine_arg=["positions=a,b"])
    refuse_unable(recipe)
    assert arguments_of("narrow", recipe) == (("positions", "a,b"),)
    alone = by_engine(recipe)
    assert [one.measure.engine for one in alone.values()] == [("torch",), ("narrow",)]
    assert alone["torch"].measure.engine_args == ()
    with pytest.raises(UsageError, match="narrow takes no position; did you mean positions"):
        refuse_unable(asked(engine="narrow", engine_arg=["position=yes"]))
    with pytest.raises(UsageError, match="torch takes no url"):
        refuse_unable(asked(engine_arg=["url=http://x"]))
    with pytest.raises(UsageError, match='"url" is not name=value'):
        asked(engine_arg=["url"])


def test_refusals_come_before_a_model_is_read(narrow: EngineRow, tmp_path: Path) -> None:
    lines(tmp_path / "config.json", "{")
    for words in (["run", "--batch-size", "2"], ["rank"], ["verify"], ["run", "--profile"]):
        said = refused(*words, "-t", tmp_path, "-d", "self", "--engine", "narrow")
        assert "--engine narrow" in said[0], said


@pytest.mark.usefixtures("narrow")
def test_counts_by_position_give_the_acceptance_of_the_cycles(at: Path, tmp_path: Path) -> None:
    own = told(at, tmp_path / "own", "torch")
    row = told(at, tmp_path / "o", "narrow", "--engine-arg", "positions=yes")
    assert (row["engine"], row["alpha_kind"]) == ("narrow", "positions")
    for name in ("alpha", "alpha_low", "tau", "tau_high", "tau_gap", "num_tested", "num_cycles"):
        assert row[name] == own[name], name
    empty = ("t_draft_ms", "t_verify_ms", "t_other_ms", "cost_ratio", "num_full_accept")
    assert [row[name] for name in empty] == [""] * len(empty)
    assert float(row["speedup"]) > 0
    assert float(row["ttft_ms"]) > 0


@pytest.mark.usefixtures("narrow")
def test_accepted_drafts_alone_give_alpha_by_inversion(at: Path, tmp_path: Path) -> None:
    own = told(at, tmp_path / "own", "torch")
    row = told(at, tmp_path / "o", "narrow")
    accepted, cycles = int(own["num_accepted"]), int(own["num_cycles"])
    assert (row["alpha_kind"], row["num_tested"], row["tau_closed_form"]) == ("inverted", "", "")
    assert float(row["tau"]) == pytest.approx(1 + accepted / cycles, abs=1e-12)
    assert float(row["alpha"]) == pytest.approx(alpha_from_tau(1 + accepted / cycles, 3), abs=1e-9)
    assert float(row["accepted_per_drafted"]) == pytest.approx(accepted / (3 * cycles), abs=1e-12)
    for one in rows_of(tmp_path / "o"):
        told_not = ("num_tested", "num_full_accept", "draft_s", "verify_s", "num_timed_cycles")
        assert [one[name] for name in told_not] == [""] * len(told_not)
    page = (tmp_path / "o/report.html").read_text(encoding="utf-8")
    assert "nan" not in page.lower().replace("nanum", "")
