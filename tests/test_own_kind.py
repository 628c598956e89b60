"""Adding a kind as CONTRIBUTING.md says: its lines are taken from there, and followed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
import torch
import transformers as hf
from cli_runs import lines, refused, specbench, summary

from specbench import drafts
from specbench.drafts import Context, open_draft
from specbench.errors import UsageError
from specbench.kinds import KINDS, Kind
from specbench.measure.score_starts import scorer_of
from specbench.records import Sampling
from specbench.settings import recipe_specs
from specbench.settings.model_refs import resolve
from specbench.settings.recipe_specs import DraftSpec

ROOT = Path(__file__).parent.parent


def blocks() -> list[str]:
    """The Python of CONTRIBUTING.md: the file, and the row of the table."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `mine.py`, a pair and prompts, in which the command is started."""
    code, _ = blocks()
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    models.save(models.rnd(), tmp_path / "t")
    models.save(models.noisy(models.rnd(), 0.1), tmp_path / "d")
    lines(tmp_path / "p.txt", "w1 w5 w9", "w4 w2")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("mine", "hollow", "odd"):
        sys.modules.pop(name, None)


def flags(draft: str) -> list[object]:
    how = ["--dtype", "float64", "-g", "3", "--max-new-tokens", "16", "--warmup", "0"]
    return ["run", "-t", "t", "-d", draft, "--dataset", "p.txt", *how, "-o", "o", "--threads", "1"]


def test_the_code_is_ten_lines() -> None:
    code, row = blocks()
    assert len([line for line in code.split("\n") if line.strip()]) <= 10
    assert row.startswith("Kind(")


@pytest.mark.usefixtures("here")
def test_it_runs_from_the_folder_it_lies_in() -> None:
    ran = specbench(*flags("external:mine:GreedyDraft,model=d"), "--temperature", "0,1")
    assert ran.code == 0, ran.err
    rows = [r for r in summary(Path("o")) if r["gamma"] == "3"]
    assert {r["status"] for r in rows} == {"ok"}
    # One-hot at temperature 1 too: Σ min(p, q) is p of the likeliest token, at most 1.
    assert all(0 < float(r["alpha_overlap"]) <= 1 for r in rows)


def test_its_row_makes_it_a_kind(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same class by its own name, with the law that it draws by."""
    kind = eval(blocks()[1].replace("specbench.drafts.mine", "mine"), {"Kind": Kind})
    for module in (drafts, recipe_specs):
        monkeypatch.setattr(module, "KINDS", {**KINDS, kind.name: kind})
    monkeypatch.syspath_prepend(here)
    spec = DraftSpec.model_validate("greedy:d")
    target = models.lm(models.rnd())
    tokenizer = hf.AutoTokenizer.from_pretrained(here / "t")
    context = Context(target, tokenizer, torch.device("cpu"), "float64")
    draft: Any = open_draft(spec.kind, str(here / spec.ref), {}, spec.label, context)
    (result,) = models.run(target, draft, [[1, 5, 9]], 3, sampling=Sampling(), max_new=24)
    cycle = result.cycles[0]
    text, tested = list(cycle.emitted_ids), np.full(len(cycle.emitted_ids), -1)
    tested[: cycle.num_tested] = cycle.drafted_ids[: cycle.num_tested]
    scores = scorer_of(target, draft, Sampling(), 3).score([1, 5, 9], text, tested)
    p = models.next_law(models.rnd(), [1, 5, 9])
    assert scores.keep[0] == pytest.approx(float(p[cycle.drafted_ids[0]]))
    assert scores.overlap[0] == pytest.approx(scores.keep[0])


@pytest.mark.parametrize(
    ("draft", "part"),
    [
        ("external:", "external needs code: module:Class"),
        ("external:nowhere:Draft", "no module nowhere"),
        ("external:mine:Missing", "mine has no Missing"),
        ("external:mine:", "mine has no class named"),
        ("external:breaks:Draft", "breaks cannot be imported: ZeroDivisionError"),
        ("external:mine:GreedyDraft", "no model at"),
        ("external:hollow:Draft", "hollow:Draft lacks own_length, commit()"),
        ("external:hollow:Odd", 'law is "sometimes"'),
        ("external:hollow:Raises", "cannot be opened: RuntimeError: no"),
        ("external:hollow:nothing", "has no classmethod open"),
        ("external:unknown", "no entry point unknown in the group specbench.drafts"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_cannot_be_opened_is_one_message(draft: str, part: str) -> None:
    Path("breaks.py").write_text("1 / 0\n", encoding="utf-8")
    Path("hollow.py").write_text(HOLLOW, encoding="utf-8")
    assert part in "\n".join(refused(*flags(draft)))


ODD = """
from dataclasses import replace
from specbench.drafts.hf import HfDraft

class Negative(HfDraft):
    def propose(self, gamma, state, uniforms):
        found = super().propose(gamma, state, uniforms)
        if found.law is not None:
            found.law[:, :, 0] -= 1.5
            found.law[:, :, 1] += 1.5
        return found

class Half(HfDraft):
    def propose(self, gamma, state, uniforms):
        found = super().propose(gamma, state, uniforms)
        return replace(found, law=found.law / 2)

class Short(HfDraft):
    def propose(self, gamma, state, uniforms):
        found = super().propose(gamma, state, uniforms)
        return replace(found, tokens=found.tokens[:, :1], law=found.law[:, :1])

class Less(HfDraft):
    own_length = True
    def propose(self, gamma, state, uniforms):
        return replace(super().propose(gamma, state, uniforms), counts=(-1,) * len(uniforms))

class More(Less):
    def propose(self, gamma, state, uniforms):
        return replace(super().propose(gamma, state, uniforms), counts=(gamma + 1,) * len(uniforms))

class Empty(Less):
    def propose(self, gamma, state, uniforms):
        found = HfDraft.propose(self, gamma, state, uniforms)
        return replace(found, tokens=found.tokens[:, :0], law=found.law[:, :0])

class Beyond(HfDraft):
    def propose(self, gamma, state, uniforms):
        found = super().propose(gamma, state, uniforms)
        return replace(found, tokens=found.tokens + 32)
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Negative", "a law that it drafted by is none"),
        ("Half", "a law that it drafted by is none"),
        ("Short", "the draft proposed tokens (1, 1) in place of (1, 3)"),
        ("Less", "the draft counts (-1,) tokens of 3 in 1 rows"),
        ("More", "the draft counts (4,) tokens of 3 in 1 rows"),
        ("Beyond", "; it has 32"),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_proposal_that_is_none_is_no_number(name: str, said: str) -> None:
    """Each would be counted as a cycle like any other: α 0 for counts of −1, 1 for half a law."""
    Path("odd.py").write_text(ODD, encoding="utf-8")
    ran = specbench(*flags(f"external:odd:{name},model=d"), "--temperature", "1")
    assert ran.code in (1, 2)
    assert said in ran.err + ran.out
    if ran.code == 1:
        rows = [r for r in summary(Path("o")) if r["gamma"] == "3"]
        assert {(r["status"], r["alpha"]) for r in rows} == {("error", "")}


@pytest.mark.usefixtures("here")
def test_a_proposal_of_nothing_is_a_cycle_without_drafts() -> None:
    Path("odd.py").write_text(ODD, encoding="utf-8")
    ran = specbench(*flags("external:odd:Empty,model=d"), "--temperature", "1")
    assert ran.code == 0, ran.err
    (row,) = [r for r in summary(Path("o")) if r["gamma"] == "3"]
    assert (row["status"], row["num_drafted"], row["tau"]) == ("ok", "0", "1.0")


def test_the_shipped_pair_drafts_with_its_draft() -> None:
    assert resolve("embedded", "--draft").path.endswith("draft")
    assert resolve("embedded", "--target").path.endswith("target")


HOLLOW = """
class Draft:
    law, context, vocab_size, dtype = "context", 99, 32, ""
    start = propose = keep_rows = nbytes = finite = problem = along = lambda *_: None
    @classmethod
    def open(cls, *_):
        return cls()

class Odd(Draft):
    law = "sometimes"

class Raises(Draft):
    @classmethod
    def open(cls, *_):
        raise RuntimeError("no")

nothing = 3
"""


def test_an_entry_point_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a package offers in the group `specbench.drafts`."""
    from importlib.metadata import EntryPoint

    from specbench.drafts import external

    one = EntryPoint("ours", "specbench.drafts.ngram:NgramDraft", external.GROUP)
    monkeypatch.setattr(external, "entry_points", lambda group: [one])
    context = Context(models.lm(models.rnd()), None, torch.device("cpu"))
    draft = open_draft("external", "ours", {"max": 2}, "mine", context)
    assert (draft.law, draft.own_length) == ("start", True)
    with pytest.raises(UsageError, match="no entry point other"):
        open_draft("external", "other", {}, "mine", context)


def test_a_draft_beyond_its_table_is_told_once_with_the_number_of_prompts(here: Path) -> None:
    """Of both prompts, at every γ and law, each with an id of its own."""
    code = (
        "import torch\n"
        "from specbench.drafts.base import Proposal\n"
        "from specbench.drafts.hf import HfDraft\n\n\n"
        "class Wild(HfDraft):\n"
        "    calls = 0\n\n"
        "    def propose(self, gamma, state, uniforms):\n"
        "        Wild.calls += 1\n"
        "        ids = torch.full((len(uniforms), gamma), 5000 + Wild.calls)\n"
        "        return Proposal(ids, None)\n"
    )
    (here / "odd.py").write_text(code, encoding="utf-8")
    how = ["--dtype", "float64", "-g", "2,3", "--max-new-tokens", "8", "--threads", "1"]
    ran = specbench(
        *("verify", "-t", "t", "-d", "external:odd:Wild,model=d", "--dataset", "p.txt", *how),
        *("--temperature", "0,1", "--samples", "5000"),
    )
    said = [line for line in ran.err.splitlines() if "proposed id" in line]
    assert len(said) == 1, ran.err
    assert re.search(r": 2 prompts, the first 1: the draft proposed id 50\d\d; it has", said[0])
