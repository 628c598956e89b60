"""Cases about laws, counts and wiring that take a whole run each: read from its files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import models
import pytest
import torch
import transformers as hf
from cli_runs import cell, generations, lines, measure, specbench, summary, tokens
from test_cases_failures import patch
from test_cases_measure import GREEDY, MANY, P, Q
from test_cases_pairs import law_of, near
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import LlamaForCausalLM

from specbench.drafts import hf as draft_module
from specbench.engines import loop


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RND(0) as `t`, NOISY(0.01) as `d`, IID(P) as `p` and IID(Q) as `q`, and prompts."""
    folder = tmp_path_factory.mktemp("laws")
    models.save(models.build(), folder / "t")
    models.save(models.noisy(models.build()), folder / "d")
    models.save(models.iid(P), folder / "p")
    models.save(models.iid(Q), folder / "q")
    lines(folder / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w3 w7 w8")
    lines(folder / "many.txt", *["w1 w2"] * 64)
    return folder


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_checkpoint_in_half_precision_has_the_law_of_its_rounded_logits(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """D17, trap 1: stored and run in half precision; α within .005 of Σ min of the rounded laws.

    N = 64 prompts × 60 tokens, seed 0. Every tensor that the sampler gets is float64.
    """
    half = getattr(torch, dtype)
    pair = [models.iid(law).to(half) for law in (P, Q)]
    for name, model in zip("pq", pair, strict=True):
        models.save(model, tmp_path / name)
    seen: set[torch.dtype] = set()
    decide, draw = loop.decide_sampled, draft_module.draw

    def watched(*words: Any) -> Any:
        seen.update(x.dtype for x in words if isinstance(x, torch.Tensor) and x.is_floating_point())
        return (decide if len(words) > 2 else draw)(*words)

    monkeypatch.setattr(loop, "decide_sampled", watched)
    monkeypatch.setattr(draft_module, "draw", watched)
    flags = ["--dtype", dtype, "-g", "3", "--max-new-tokens", "60"]
    measure(tmp_path / "o", tmp_path / "p", [tmp_path / "q"], at / "many.txt", *MANY, *flags)
    row = cell(tmp_path / "o", 3)
    assert (row["dtype"], row["draft_dtype"]) == (dtype, dtype)
    p, q = (models.next_law(model, [1, 2]) for model in pair)
    overlap = float(torch.minimum(p, q).sum())
    assert abs(float(row["alpha_overlap"]) - overlap) < 1e-6
    assert abs(overlap - 0.6) < 0.005
    assert near(float(row["alpha"]), overlap, int(row["num_tested"]))
    found, count = law_of(tmp_path / "o", 3, 3)
    assert all(near(f, w, count) for f, w in zip(found, p.tolist(), strict=True)), found
    assert seen == {torch.float64}


@pytest.mark.slow
def test_twenty_thousand_cycles_agree_with_the_formula(at: Path, tmp_path: Path) -> None:
    """D26, trap 10: IID(P)/IID(Q), γ = 4: α = .600 ± .01, τ = 2.306 ± .02, .326 under its own name.

    512 prompts × 92 tokens, seed 0: over 20,000 cycles; 0.326 taken for α would predict 1.48.
    """
    prompts = lines(tmp_path / "p.txt", *["w1 w2"] * 512)
    flags = ["-g", "4", "--max-new-tokens", "92", *MANY, "-n", "512"]
    measure(tmp_path / "o", at / "p", [at / "q"], prompts, *flags)
    row = cell(tmp_path / "o", 4)
    assert int(row["num_cycles"]) > 20_000
    found = {name: float(row[name]) for name in ("alpha", "tau", "accepted_per_drafted")}
    assert found["alpha"] == pytest.approx(0.6, abs=0.01)
    assert found["tau"] == pytest.approx(2.3056, abs=0.02)
    assert found["accepted_per_drafted"] == pytest.approx(0.3264, abs=0.01)
    counts = {name: int(row[f"num_{name}"]) for name in ("tested", "accepted", "drafted", "cycles")}
    rejected = counts["cycles"] - int(row["num_full_accept"])
    assert counts["tested"] == counts["accepted"] + rejected
    assert found["alpha"] == counts["accepted"] / (counts["accepted"] + rejected)
    assert row["closed_form_verdict"] in ("agrees", "undecided")
    assert float(row["iid_p_value"]) > 1e-3
    assert abs(float(row["tau_gap"])) < 0.02
    assert float(row["alpha_overlap"]) == pytest.approx(0.6, abs=1e-6)


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcde"


def test_tokens_are_counted_by_ids_where_the_text_would_merge(at: Path, tmp_path: Path) -> None:
    """D27: a tokenizer that reads the emitted text in fewer tokens: both methods count 12 and 12.

    The greedy text of RND(0) holds 10, 28 twice, and id 31 is those two letters in one.
    """
    models.save(models.rnd(), tmp_path / "t")
    models.save(models.noisy(models.rnd()), tmp_path / "d")
    vocab = {letter: i for i, letter in enumerate(LETTERS)} | {"Kc": 31}
    raw = Tokenizer(BPE(vocab, [("K", "c")]))
    raw.decoder = decoders.Fuse()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=raw)
    for name in "td":
        tokenizer.save_pretrained(tmp_path / name)
    text = tokenizer.decode(GREEDY)
    assert len(tokenizer.encode(text)) == len(GREEDY) - 2
    prompts = lines(tmp_path / "p.txt", "BFJ")
    flags = ["--dtype", "float64", "-g", "3", "--max-new-tokens", "12"]
    measure(tmp_path / "o", tmp_path / "t", [tmp_path / "d"], prompts, *flags)
    assert list(tokens(tmp_path / "o").values()) == [GREEDY] * 2
    base, row = cell(tmp_path / "o", 0), cell(tmp_path / "o", 3)
    assert base["num_output_tokens"] == row["num_output_tokens"] == "12"
    assert [r["num_output_tokens"] for r in generations(tmp_path / "o")] == ["12", "12"]
    of = {name: float(row[name]) for name in ("speedup", "baseline_latency_ms", "latency_ms")}
    assert of["speedup"] == pytest.approx(of["baseline_latency_ms"] / of["latency_ms"])


def test_ties_fall_alike_with_and_without_a_draft(tmp_path: Path) -> None:
    """D18: (.4, .4, .2) on both sides at T = 0: the lowest id at γ = 0 and γ = 3, α = 1."""
    models.save(models.iid([0.4, 0.4, 0.2]), tmp_path / "t")
    prompts = lines(tmp_path / "p.txt", "w1", "w2 w2")
    measure(tmp_path / "o", tmp_path / "t", [tmp_path / "t"], prompts, "-g", "3")
    assert set(map(tuple, tokens(tmp_path / "o").values())) == {(0,) * 6}
    assert float(cell(tmp_path / "o", 3)["alpha"]) == 1


def test_settings_reach_the_models(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D34: dtypes, batch and threads are those of the forwards, not only of the CSV."""
    seen: set[tuple[str, str, int, int]] = set()

    def note(model: Any, ids: torch.Tensor) -> None:
        dtype = str(model.dtype).removeprefix("torch.")
        name = Path(model.name_or_path).name
        seen.add((name, dtype, ids.shape[0], torch.get_num_threads()))

    patch(monkeypatch, LlamaForCausalLM, note)
    flags = ["--dtype", "float64", "--draft-dtype", "bfloat16", "--batch-size", "3"]
    more = ["--threads", "2", "--max-new-tokens", "2"]
    measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt", *flags, *more)
    torch.set_num_threads(1)
    assert {(name, dtype) for name, dtype, *_ in seen} == {("t", "float64"), ("d", "bfloat16")}
    assert {threads for *_, threads in seen} == {2}
    assert {("t", "float64", 3, 2), ("d", "bfloat16", 3, 2)} <= seen
    (row,) = summary(tmp_path / "o", gamma=2)
    named = ("dtype", "draft_dtype", "batch_size", "threads")
    assert [row[name] for name in named] == ["float64", "bfloat16", "3", "2"]


# Files, streams and windows


def test_na_and_none_are_shown_by_the_report(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D35: run → report: both labels stand in the terminal, in the report and in the rows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "None").symlink_to(at / "d")
    lines(Path("NA"), "w1 w5", "w4", "w9 w2")
    measure(Path("null"), at / "t", ["None"], Path("NA"))
    ran = specbench("report", "null", "--all")
    assert ran.code == 0, ran.err
    assert "None" in ran.out
    rows = json.loads(specbench("report", "null", "--format", "json").out)
    rows = rows if isinstance(rows, list) else rows["rows"]
    assert {(row["draft"], row["dataset"]) for row in rows} == {("None", "NA")}
    text = (tmp_path / "null" / "report.md").read_text(encoding="utf-8")
    assert "None" in text
    assert "nan" not in text.lower().split()


@pytest.mark.parametrize("backend", ["", "TkAgg"])
def test_charts_need_no_display(at: Path, tmp_path: Path, backend: str) -> None:
    """D38: no DISPLAY, and MPLBACKEND=TkAgg: exit 0, PNG and SVG that are not empty.

    Neither the package nor the command imports a GUI toolkit.
    """
    measure(tmp_path / "o", at / "t", [at / "d"], at / "p.txt")
    hidden = {"DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND"}
    env = {k: v for k, v in os.environ.items() if k not in hidden}
    env |= {"MPLCONFIGDIR": str(tmp_path), "COVERAGE_PROCESS_START": ""}
    env |= {"MPLBACKEND": backend} if backend else {}
    code = (
        "import sys, specbench, specbench.cli\n"
        f"sys.argv = ['specbench', 'report', {str(tmp_path / 'o')!r}]\n"
        "try:\n    specbench.cli.main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "names = {'tkinter', 'PyQt5', 'PyQt6', 'PySide6', 'wx', 'gi', 'matplotlib.pyplot'}\n"
        "assert not names & set(sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    drawn = sorted((tmp_path / "o" / "plots").iterdir())
    assert {path.suffix for path in drawn} == {".png", ".svg"}
    assert all(path.stat().st_size > 1000 for path in drawn)
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in drawn if path.suffix == ".png")


def test_every_case_and_trap_is_named_by_a_test() -> None:
    """The 45 public fault reports and the ten traps behind them, each found by its name."""
    here = Path(__file__)
    texts = [p.read_text(encoding="utf-8") for p in here.parent.glob("test_*.py") if p != here]
    texts.append(here.read_text(encoding="utf-8").rpartition("def test_every_case")[0])
    named = set().union(*map(_named, texts))
    assert {f"D{i:02}" for i in range(1, 46)} <= named
    assert {str(i) for i in range(1, 11)} <= named


def _named(text: str) -> set[str]:
    """Case ids, and the numbers of traps (`trap 3`, `traps 5 to 7`)."""
    found = set(re.findall(r"\bD\d\d\b", text))
    for first, last in re.findall(r"[Tt]raps? (\d+)(?: to (\d+))?", text):
        found |= {str(i) for i in range(int(first), int(last or first) + 1)}
    return found
