"""`train-draft --kind eagle`: what it teaches, resume, and the folder as a draft."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
import torch
import transformers as hf
from cli_runs import cell, lines, measure, specbench
from safetensors.torch import load_file
from test_eagle import FEW, LAW, TEXT
from test_train_draft import TINY, curve, held_texts
from torch import Tensor

from specbench.drafts import Context, open_draft
from specbench.drafts.eagle import EagleDraft
from specbench.training.eagle_student import EagleStudent, likeliest
from specbench.training.held_out import HeldOut
from specbench.training.losses import divergences
from specbench.training.plan import Plan, checkpoint_of
from specbench.training.teacher import Lesson, Teacher
from specbench.training.texts import Text

SIZES = [*TINY[:-4], "--warmup", "2", "--kind", "eagle", "--optimizer", "adamw"]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target whose law is that of the last token alone, and six prompts."""
    folder = tmp_path_factory.mktemp("train")
    models.save(models.memoryless(3, 16), folder / "t")
    models.save(models.rnd("gemma2"), folder / "capped")
    lines(folder / "p.txt", *[f"w{i % 5} w{(i + 1) % 5} w{i % 3}" for i in range(6)])
    return folder


def train(at: Path, out: str, *words: object) -> Any:
    given = ["-t", at / "t", "--dataset", at / "p.txt", *SIZES, "-o", at / out]
    return specbench("train-draft", *given, *words)


@pytest.fixture(scope="module")
def learnt(at: Path) -> Path:
    """A head that drafts 8 of 16 ids, after 60 steps."""
    ran = train(at, "few", "--steps", 60, "--every", 30, "--rate", "0.02", "--draft-vocab", 8)
    assert ran.code == 0, ran.err
    return at / "few"


def test_a_known_law_is_learnt_at_every_depth_of_a_chain(at: Path, learnt: Path) -> None:
    """No head does better than p on its ids: p(S) by position, without our code."""
    rows = curve(learnt)
    ids = load_file(learnt / "model.safetensors")["draft_ids"]
    assert len(ids) == 8
    model = hf.AutoModelForCausalLM.from_pretrained(at / "t", dtype=torch.float64).eval()
    masses = []
    for text in held_texts(learnt):
        with torch.inference_mode():
            p = model(torch.tensor([text])).logits[0].softmax(dim=-1)
        masses += p[2:-1, ids].sum(dim=-1).tolist()
    best = sum(masses) / len(masses)
    first, last = float(rows[0]["alpha"]), float(rows[-1]["alpha"])
    assert first < 0.7 * best
    assert 0.9 * best < last <= best + 1e-6
    assert 0.8 * best < float(rows[-1]["alpha_deep"]) <= best + 0.1
    assert float(rows[-1]["loss"]) < 0.5 * float(rows[1]["loss"]) + 0.2


def test_the_curve_is_what_scoring_says_of_the_folder(at: Path, learnt: Path) -> None:
    target = models.lm(
        models.build("llama", 3, 16, pad_token_id=None, max_position_embeddings=1024)
    )
    target.model.load_state_dict(models.memoryless(3, 16).state_dict())
    tokenizer = hf.AutoTokenizer.from_pretrained(at / "t")
    context = Context(target, tokenizer, torch.device("cpu"))
    draft = open_draft("eagle", str(learnt), {}, "e", context)
    held = HeldOut(target, [Text(tuple(t[:3]), tuple(t[3:])) for t in held_texts(learnt)])
    row = curve(learnt)[-1]
    assert held.alpha(draft).value == pytest.approx(float(row["alpha"]), abs=1e-5)
    deep = held.alpha(draft, Plan().unroll - 1).value
    assert deep == pytest.approx(float(row["alpha_deep"]), abs=1e-5)


def test_the_folder_is_a_draft(at: Path, learnt: Path) -> None:
    measure(at / "ran", at / "t", [f"eagle:{learnt}"], at / "p.txt", "--temperature", 1)
    assert float(cell(at / "ran", 2)["alpha"]) > 0
    about = json.loads((at / "ran" / "run.json").read_text(encoding="utf-8"))["drafts"]
    assert {one["law"] for one in about.values()} == {"start"}
    checked = specbench("validate", "-t", at / "t", "-d", f"eagle:{learnt}")
    assert (checked.code, "same vocabulary" in checked.out) == (0, True), checked.err
    wrong = specbench("validate", "-t", "embedded", "-d", f"eagle:{learnt}")
    assert (wrong.code, "vocabularies" in wrong.err) == (2, True)
    model = specbench("run", "-t", at / "t", "-d", f"hf:{learnt}", "-o", at / "no")
    assert (model.code, f"--draft eagle:{learnt}" in model.err) == (2, True), model.err
    none = specbench("validate", "-t", at / "t", "-d", f"eagle:{at / 't'}")
    assert (none.code, "holds no EAGLE head" in none.err) == (2, True)


@pytest.mark.slow
def test_verify_finds_the_pair_lossless(at: Path, learnt: Path) -> None:
    """5,000 sequences of the loop, the pair's own text, greedy text: at γ 4."""
    pair = ["-t", at / "t", "-d", f"eagle:{learnt}", "--dataset", at / "p.txt"]
    how = ["--samples", 5000, "--max-new-tokens", 64, "--threads", 1, "--format", "json"]
    ran = specbench("verify", *pair, *how)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["verdict"] == "lossless"


def test_a_resume_gives_the_bits_of_an_unbroken_run(at: Path) -> None:
    """Weights, optimizer and draft vocabulary; the vocabulary is that of the checkpoint."""
    how = ["--steps", 6, "--every", 2, "--draft-vocab", 5]
    assert train(at, "whole", *how).code == 0
    assert train(at, "parts", *how, "--minutes", 0).code == 0
    for _ in range(2):
        # The second one has nothing left to do.
        ran = specbench("train-draft", "--resume", "-o", at / "parts")
        assert ran.code == 0, ran.err
    files = [(at / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert files[0] == files[1]
    states = [load_file(checkpoint_of(at / name)) for name in ("whole", "parts")]
    assert all(torch.equal(a, states[1][name]) for name, a in states[0].items())


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--layers", "2"], "an EAGLE head has one layer"),
        (["--from-layers", "1"], "an EAGLE head has one layer"),
        (["--unroll", "9"], "--unroll 9: a window has 8 tokens"),
        (["--kind", "hf", "--draft-vocab", "5"], "--draft-vocab is for an EAGLE head"),
        (["-t", "CAPPED"], "gives no hidden states"),
    ],
)
def test_what_cannot_be_done_is_refused(at: Path, words: list[str], part: str) -> None:
    given = [str(at / "capped") if word == "CAPPED" else word for word in words]
    ran = train(at, "refused", *given)
    assert (ran.code, part in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("ids", [None, FEW], ids=["all", "few"])
def test_training_sees_at_each_depth_the_law_that_a_cycle_would_draw_from(
    ids: Tensor | None,
) -> None:
    """KL and total variation at every position and depth, against the chains of scoring."""
    target = models.lm(models.build().float())
    teacher = Teacher(target)
    lesson = teacher.lesson(torch.tensor([TEXT, TEXT[::-1]]))
    student = EagleStudent(Plan(kind="eagle", unroll=4, seed=5), target, ids, lesson)
    with torch.no_grad():
        for parameter in student.module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
        pairs = student.losses(lesson)
    draft = student.draft()
    assert isinstance(draft, EagleDraft)
    for row in range(2):
        # One more token, so that a chain begins behind the last of the window.
        tokens = torch.cat([lesson.ids[row], torch.tensor([0])]).unsqueeze(0)
        with torch.inference_mode():
            chains = list(draft.chains(tokens, 1, len(TEXT) + 1, 4, LAW))
        for depth, (kl, variation) in enumerate(pairs):
            assert kl.shape == (2, len(TEXT) - depth)
            for place in range(len(TEXT) - depth):
                # A cycle that begins behind `place` drafts at `depth` what follows place + depth.
                law = chains[place].law
                assert law is not None
                q, p = law[depth], lesson.p[row, place + depth].double()
                inside = q > 0
                wanted = float((p[inside] * (p[inside] / q[inside]).log()).sum())
                assert float(kl[row, place]) == pytest.approx(wanted, abs=1e-4)
                kept = float(torch.minimum(p, q).sum())
                assert float(variation[row, place]) == pytest.approx(1 - kept, abs=1e-5)


def test_the_likeliest_ids_are_those_of_the_most_mass() -> None:
    p = torch.tensor([[[0.5, 0.1, 0.3, 0.1], [0.1, 0.1, 0.1, 0.7]]])
    lesson = Lesson(torch.zeros(1, 2, dtype=torch.int64), p)
    assert likeliest([lesson], 2, []).tolist() == [0, 3]
    assert likeliest([lesson, lesson], 2, [1]).tolist() == [1, 3]
    assert likeliest([lesson], 9, []).tolist() == [0, 1, 2, 3]


def test_divergences_are_those_of_the_definition() -> None:
    """KL and 1 − Σ min(p, q) of laws of three ids, and of a part of a law."""
    p, q = torch.tensor([0.5, 0.2, 0.3]), torch.tensor([0.25, 0.5, 0.25])
    kl, variation = divergences(q.log(), p)
    wanted = 0.5 * np.log(2) + 0.2 * np.log(0.4) + 0.3 * np.log(1.2)
    assert float(kl) == pytest.approx(wanted, abs=1e-6)
    assert float(variation) == pytest.approx(0.3, abs=1e-6)
    _, part = divergences(torch.tensor([0.5, 0.5]).log(), p[:2])
    assert float(part) == pytest.approx(1 - 0.5 - 0.2, abs=1e-6)
