"""`verify --result DIR`: the verdict goes to the run of the same models, and to no other."""

from __future__ import annotations

import json
from pathlib import Path

import models
import pytest
from cli_runs import lines, measure, refused, specbench
from test_verify import EXACT

from specbench.verification import verify


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """RND(0) as `t`, two drafts, and a run of both; a check of one law of sequences."""
    monkeypatch.setattr(verify, "exact_tests", EXACT)
    monkeypatch.setattr(verify, "LAWS", verify.LAWS[:1])
    models.save(models.build(), tmp_path / "t")
    models.save(models.noisy(models.build(), 0.1), tmp_path / "d")
    lines(tmp_path / "p.txt", "w1 w5 w9", "w4 w2")
    measure(tmp_path / "o", tmp_path / "t", [tmp_path / "d", "self"], tmp_path / "p.txt")
    return tmp_path


def verified(at: Path, target: str, *drafts: object) -> list[object]:
    chosen = [word for draft in drafts for word in ("-d", draft)]
    small = ["--max-new-tokens", "8", "--samples", "5000", "-g", "2", "--threads", "1"]
    return ["verify", "-t", at / target, *chosen, "--dataset", at / "p.txt", *small]


def test_a_verdict_is_noted_in_the_run(at: Path) -> None:
    """Of the draft that was looked at; another verification adds to it; W18 names the rest."""
    result = ["--result", at / "o"]
    before = specbench("report", at / "o").err
    assert "W18: not verified: d, self" in before
    ran = specbench(*verified(at, "t", at / "d"), *result)
    assert ran.code == 0, ran.err
    manifest = json.loads((at / "o" / "run.json").read_text())
    assert manifest["verified"] == {"d": "lossless"}
    assert "W18: not verified: self" in specbench("report", at / "o").err
    assert specbench(*verified(at, "t", "self"), *result).code == 0
    manifest = json.loads((at / "o" / "run.json").read_text())
    assert manifest["verified"] == {"d": "lossless", "self": "lossless"}
    assert "W18" not in specbench("report", at / "o").err


def test_a_run_of_other_models_is_refused(at: Path) -> None:
    """Exit 2 before anything is decoded: another target, other weights, no run at all."""
    models.save(models.build(seed=3), at / "x" / "d")
    models.save(models.build(), at / "u")
    kept = (at / "o" / "run.json").read_bytes()
    for target, draft, said in (("u", at / "d", "target"), ("t", at / "x" / "d", "than d")):
        found = refused(*verified(at, target, draft), "--result", at / "o")
        assert said in found[0]
        assert f"--result {at / 'o'}" in found[1]
    assert "no result in" in refused(*verified(at, "t", "self"), "--result", at / "none")[0]
    assert (at / "o" / "run.json").read_bytes() == kept
