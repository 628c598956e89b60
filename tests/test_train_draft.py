"""`train-draft`: what it teaches, that it goes on exactly, and what it refuses."""

from __future__ import annotations

import copy
import csv
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
import torch
import transformers as hf
from cli_runs import cell, lines, measure, specbench
from safetensors.torch import load_file

from specbench.drafts import Context, open_draft
from specbench.errors import RunError
from specbench.estimators.intervals import Interval
from specbench.measure.score import TextScorer
from specbench.records import Sampling
from specbench.training.held_out import HeldOut
from specbench.training.open import Where, opened
from specbench.training.plan import Plan, checkpoint_of, made
from specbench.training.texts import Text
from specbench.training.train import Training
from specbench.training.view import TrainView

LAW = [0.4, 0.3, 0.15, 0.1, 0.05]
TINY = ["--window", "8", "--batch-size", "4", "--sample-tokens", "12", "--sample-batch", "8"]
TINY += ["--held-out", "2", "--threads", "1", "--width", "16", "--warmup", "2"]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target whose every step has one law, one with a history, and six prompts."""
    folder = tmp_path_factory.mktemp("train")
    models.save(models.iid(LAW), folder / "iid")
    models.save(models.rnd(), folder / "rnd")
    lines(folder / "p.txt", *[f"w{i % 5} w{(i + 1) % 5} w{i % 3}" for i in range(6)])
    return folder


def train(at: Path, out: str, *words: object, target: str = "iid") -> Any:
    given = ["-t", at / target, "--dataset", at / "p.txt", *TINY, "-o", at / out]
    return specbench("train-draft", *given, *words)


def curve(folder: Path) -> list[dict[str, str]]:
    with (folder / "curve.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def held_texts(folder: Path) -> list[list[int]]:
    """The held-out texts, replies alone; every prompt has three tokens."""
    from specbench.training.texts import _read

    texts = _read(folder / "training" / "samples" / "held-out.safetensors")
    return [[*text.prompt, *text.reply] for text in texts]


def test_a_known_law_is_learnt_and_the_held_out_alpha_says_so(at: Path) -> None:
    """Every step has the law LAW: the draft's own laws, read without our code, come near it."""
    ran = train(at, "learnt", "--steps", 60, "--every", 20, "--rate", "0.02")
    assert ran.code == 0, ran.err
    rows = curve(at / "learnt")
    assert [row["step"] for row in rows] == ["0", "20", "40", "60"]
    losses = [float(row["loss"]) for row in rows[1:]]
    first, last = float(rows[0]["alpha"]), float(rows[-1]["alpha"])
    assert first < 0.9 < 0.97 < last
    assert float(rows[-1]["kl"]) < 0.1 * float(rows[1]["kl"])
    assert losses[-1] < losses[0]
    model = hf.AutoModelForCausalLM.from_pretrained(at / "learnt", dtype=torch.float64).eval()
    overlaps = []
    for text in held_texts(at / "learnt"):
        with torch.inference_mode():
            q = model(torch.tensor([text])).logits[0].softmax(dim=-1)
        overlaps += torch.minimum(q[2:-1], torch.tensor(LAW)).sum(dim=-1).tolist()
    assert len(overlaps) == 2 * 12
    assert last == pytest.approx(sum(overlaps) / len(overlaps), abs=1e-5)


def test_the_folder_is_a_draft_and_its_card_says_how_it_was_made(at: Path) -> None:
    measure(at / "ran", at / "iid", [at / "learnt"], at / "p.txt")
    # At temperature 0 both give the likeliest id.
    assert float(cell(at / "ran", 2)["alpha"]) == 1.0
    card = (at / "learnt" / "README.md").read_text(encoding="utf-8")
    assert "| steps | 60 |" in card
    assert "held out | 2" in card
    assert not list((at / "learnt").rglob("*.bin"))
    assert not list((at / "learnt").rglob("*.tmp"))


def test_all_layers_of_the_target_are_the_target(at: Path) -> None:
    """Σ min(p, q) is 1 before anything is learnt; of fewer layers it is that of `layerskip`."""
    words = [*TINY[:-4], "--warmup", 2, "--steps", 1, "-o"]
    for name, layers in (("all", "0-1"), ("first", "1"), ("other", "1-1")):
        given = ["-t", at / "rnd", "--dataset", at / "p.txt", *words, at / name]
        ran = specbench("train-draft", *given, "--from-layers", layers, "--dtype", "float32")
        assert ran.code == 0, ran.err
    assert float(curve(at / "all")[0]["alpha"]) == pytest.approx(1.0, abs=1e-5)
    target = models.lm(copy.deepcopy(models.rnd()).float())
    context = Context(target, None, torch.device("cpu"))
    for name, options in (("first", {"layers": 1}), ("other", {"layers": "1-1"})):
        draft = open_draft("layerskip", "", options, name, context)
        texts = [Text(tuple(t[:3]), tuple(t[3:])) for t in held_texts(at / name)]
        found = HeldOut(target, texts).alpha(draft)
        assert float(curve(at / name)[0]["alpha"]) == pytest.approx(found.value, abs=1e-4)
        assert len(load_file(at / name / "model.safetensors")) < 16


def training_at(at: Path, out: str, plan: Plan, stored: dict[str, Any] | None = None) -> Training:
    (at / out).mkdir(exist_ok=True)
    where = Where(at / out, str(at / "iid"), threads=1)
    found, engine = opened(plan, where, stored, lambda _: None)
    found.tokenizer = engine.tokenizer  # type: ignore[attr-defined]
    return found


class Silent:
    """Watches nothing, and stops after some steps."""

    def __init__(self, most: int = 10**9) -> None:
        self.left = most

    def step_done(self, *_: object) -> None:
        self.left -= 1

    def row_done(self, *_: object) -> None:
        pass

    def stop(self) -> bool:
        return self.left <= 0


def plan_at(at: Path) -> Plan:
    tiny = Plan(target=str(at / "iid"), dataset=str(at / "p.txt"), width=16, optimizer="muon")
    sizes = {"window": 8, "batch_size": 4, "sample_tokens": 12, "sample_batch": 8, "held_out": 2}
    return replace(tiny, **sizes, steps=11, every=4, warmup=2)


def test_a_resume_gives_the_bits_of_an_unbroken_run(at: Path) -> None:
    """Stopped after 1 and after 5 of 11 steps, between two checkpoints of its own."""
    plan = plan_at(at)
    whole = training_at(at, "whole", plan)
    whole.run(Silent(), lambda: False, 1e9)
    stored: dict[str, Any] | None = None
    for steps in (1, 4, 99):
        part = training_at(at, "parts", plan, stored)
        watch = Silent(steps)
        part.run(watch, watch.stop, 1e9)
        stored = part.told
    for one in (whole, part):
        one.export(one.tokenizer)  # type: ignore[attr-defined]
    assert (whole.position.step, part.position.step) == (11, 11)
    assert [row["step"] for row in part.position.curve] == [0, 1, 4, 5, 8, 11]
    files = [(at / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert files[0] == files[1]
    checkpoints = [
        load_file(at / n / "training/checkpoint.safetensors") for n in ("whole", "parts")
    ]
    assert checkpoints[0].keys() == checkpoints[1].keys()
    assert all(torch.equal(a, checkpoints[1][name]) for name, a in checkpoints[0].items())
    assert any(name.startswith("optimizer/1/") for name in checkpoints[0])


KILLED = """
import os, sys
from pathlib import Path
from specbench.training import store
from specbench.cli import main
real, count = store.save_file, [0]
def torn(tensors, path, metadata=None):
    real(tensors, path, metadata=metadata)
    count[0] += "checkpoint" in str(path)
    if count[0] == 3:
        os.truncate(path, os.path.getsize(path) // 2)
        os._exit(9)
store.save_file = torn
sys.argv[0] = "specbench"
main()
"""


@pytest.mark.slow
def test_killed_in_mid_checkpoint_it_goes_on_from_the_one_before(at: Path) -> None:
    """The third checkpoint (step 8) is cut in half: step 4 stays, and the end is the same."""
    how = ["--steps", 11, "--every", 4, "--optimizer", "muon"]
    words = ["train-draft", "-t", at / "iid", "--dataset", at / "p.txt", *TINY, "-o", at / "torn"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, [*words, *how])],
        check=False,
        capture_output=True,
        env=environment,
    )
    assert ran.returncode == 9, ran.stderr
    torn = at / "torn"
    assert not (torn / "model.safetensors").exists()
    assert curve(torn)[-1]["step"] == "4"
    again = specbench("train-draft", "--resume", "-o", torn, "--threads", 1)
    assert again.code == 0, again.err
    assert "resumed  at step 4" in again.err
    whole = train(at, "untorn", *how)
    assert whole.code == 0, whole.err
    names = [at / name / "model.safetensors" for name in ("torn", "untorn")]
    assert names[0].read_bytes() == names[1].read_bytes()


def test_the_minutes_end_a_stretch_and_leave_a_draft(at: Path) -> None:
    ran = train(at, "stretch", "--steps", 5, "--minutes", 0)
    assert ran.code == 0, ran.err
    assert "--resume --output-dir" in ran.out
    assert (at / "stretch" / "model.safetensors").is_file()
    assert [row["step"] for row in curve(at / "stretch")] == ["0"]
    assert specbench("train-draft", "--resume", "-o", at / "stretch").code == 0
    assert [row["step"] for row in curve(at / "stretch")] == ["0", "5"]
    done = specbench("train-draft", "--resume", "-o", at / "stretch")
    assert done.code == 0, done.err
    assert "step 5/5" in done.out


def test_weights_that_are_lost_are_told_and_the_checkpoint_before_stays(at: Path) -> None:
    """Not a number in the weights: found by the loss, or by the held-out texts before a row."""
    for every, part in ((4, "the loss is not finite"), (2, "logits not finite")):
        plan = replace(plan_at(at), every=every)
        training = training_at(at, f"lost{every}", plan)

        class Spoiler(Silent):
            def step_done(self, step: int, *_: object) -> None:
                if step == 2:
                    next(training.student.module.parameters()).data.fill_(torch.nan)  # noqa: B023

        with pytest.raises(RunError, match=part) as caught:
            training.run(Spoiler(), lambda: False, 1e9)
        assert "the last checkpoint is of step 0" in caught.value.where
        assert load_file(checkpoint_of(training.folder))
        again = training_at(at, f"lost{every}", plan, training.told)
        assert again.position.step == 0
        assert all(p.isfinite().all() for p in again.student.module.parameters())


def test_an_interrupt_ends_a_stretch_too(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real SIGINT in the second step: that step is kept, a draft is there, the code is 1."""
    real = TrainView.step_done

    def step_done(view: TrainView, step: int, loss: float, limit_s: float) -> None:
        real(view, step, loss, limit_s)
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainView, "step_done", step_done)
    ran = train(at, "stopped", "--steps", 9)
    assert (ran.code, "--resume --output-dir" in ran.out) == (1, True), ran.err
    assert [row["step"] for row in curve(at / "stopped")] == ["0", "2"]
    assert (at / "stopped" / "model.safetensors").is_file()


def test_layers_of_the_target_are_taught_at_a_tenth_of_the_rate() -> None:
    assert made({}).rate == pytest.approx(10 * made({"from_layers": "2"}).rate)
    assert made({"from_layers": "2", "rate": 0.5}).rate == 0.5


def test_given_texts_are_learnt_too(at: Path) -> None:
    """Of the texts themselves no sample is drawn but the held-out ones."""
    ran = train(at, "given", "--text", "given", "--steps", 2)
    assert ran.code == 0, ran.err
    names = [path.name for path in (at / "given/training/samples").iterdir()]
    assert names == ["held-out.safetensors"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--window", "5000"], "a window is 5000"),
        (["--text", "given", "--window", "500"], "all texts together have"),
        (["--held-out", "6"], "none is left to learn"),
        (["--width", "15"], "--width 15: it must be even"),
        (["--from-layers", "1"], "leave --layers and --width out"),
        (["--steps", "0"], "--steps"),
        (["--tv", "1.5"], "--tv"),
        (["--tv", "nan"], "--tv"),
        (["--rate", "nan"], "--rate"),
        (["--minutes", "nan"], "--minutes"),
        (["--kind", "nothing"], "--kind"),
        (["-t", "config:nowhere"], "no law to learn"),
        (["--dataset", "gone.jsonl"], "no prompts at gone.jsonl"),
        (["--resume"], "holds no training to go on with"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_message(
    at: Path, tmp_path: Path, words: list[str], part: str
) -> None:
    given = ["-t", at / "iid", "--dataset", at / "p.txt", *TINY, "-o", tmp_path / "out"]
    ran = specbench("train-draft", *given, *words)
    assert ran.code == 2, ran.err
    assert part in ran.err
    assert "Traceback" not in ran.err
    # What was refused leaves a folder that can be used.
    ran = specbench("train-draft", *given, "--steps", 1)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("layers", "part"),
    [
        ("7", "--from-layers: layers must be from 1 to the target's 1"),
        ("0-x", "--from-layers: layers are numbers"),
    ],
)
def test_layers_that_are_not_there_are_refused(
    at: Path, tmp_path: Path, layers: str, part: str
) -> None:
    given = ["-t", at / "iid", "--dataset", at / "p.txt", "-o", tmp_path / "a" / "b" / "out"]
    ran = specbench("train-draft", *given, "--window", 8, "--held-out", 2, "--from-layers", layers)
    assert (ran.code, part in ran.err) == (2, True), ran.err
    assert not any(tmp_path.iterdir())


def test_texts_of_no_prompt_are_refused(at: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n", encoding="utf-8")
    given = ["-t", at / "iid", "--dataset", tmp_path / "empty.txt", "-o", tmp_path / "out"]
    ran = specbench("train-draft", *given)
    assert (ran.code, "holds no prompts" in ran.err) == (2, True), ran.err


def test_another_plan_target_or_text_is_no_resume(at: Path, tmp_path: Path) -> None:
    """A folder in use, another flag, other prompts, other weights, a damaged checkpoint."""
    first = ["-t", tmp_path / "t", "--dataset", tmp_path / "p.txt", *TINY, "-o", tmp_path / "out"]
    models.save(models.iid(LAW), tmp_path / "t")
    text = (at / "p.txt").read_text(encoding="utf-8")
    (tmp_path / "p.txt").write_text(text, encoding="utf-8")
    assert specbench("train-draft", *first, "--steps", 1).code == 0
    assert "is not empty" in specbench("train-draft", *first, "--steps", 1).err
    resume = ["train-draft", "--resume", "-o", tmp_path / "out"]
    assert "--rate 0.5: what is to be resumed has 0.003" in specbench(*resume, "--rate", 0.5).err
    (tmp_path / "p.txt").write_text(text + "w1 w1\n", encoding="utf-8")
    assert "the prompts are not those" in specbench(*resume).err
    (tmp_path / "p.txt").write_text(text, encoding="utf-8")
    models.save(models.iid(LAW[::-1]), tmp_path / "t")
    assert "the target is not that" in specbench(*resume).err
    checkpoint = tmp_path / "out" / "training" / "checkpoint.safetensors"
    for size in (1000, 3, 0):
        os.truncate(checkpoint, size)
        ran = specbench(*resume)
        assert (ran.code, "cannot be read" in ran.err) == (2, True), ran.err


def test_the_held_out_alpha_is_that_of_the_scoring_pass() -> None:
    """Mean of `overlap` over the replies' positions, a text being a cluster."""
    target = models.lm(models.rnd())
    draft = models.drafter(models.noisy(models.rnd(), 0.1), target)
    texts = [Text((1, 5), (9, 2, 4)), Text((7,), (3, 3)), Text((7,), ())]
    found = HeldOut(target, texts).alpha(draft)
    scorer = TextScorer(target, draft, Sampling(1.0))
    parts = [
        scorer.score(t.prompt, t.reply, np.full(len(t.reply), -1)).overlap for t in texts if t.reply
    ]
    assert isinstance(found, Interval)
    assert found.value == pytest.approx(np.concatenate(parts).mean(), abs=1e-12)
    assert found.clusters == 2
