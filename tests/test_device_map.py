"""`--engine transformers --engine-arg device_map=…`: a target whose layers lie on several devices.

This machine has one device, so the disk is the second: accelerate's hooks fetch the weights of a
layer when it runs, as they move its inputs where devices are several.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import pytest
import transformers
from cli_runs import lines, refused, specbench, summary, tokens

PARTS = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cpu"}
COUNTS = ("num_cycles", "num_drafted", "num_accepted", "tau", "alpha", "alpha_overlap")


@pytest.fixture
def at(tmp_path: Path) -> Path:
    """RND(0) and a draft near it, two layers each, and prompts."""
    models.save(models.rnd(), tmp_path / "t")
    models.save(models.noisy(models.rnd(), 0.04), tmp_path / "d")
    lines(tmp_path / "p.txt", "w1 w5 w9", "w4 w2")
    return tmp_path


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever a map's name says, the second layer lies on the disk."""
    load: Callable[..., Any] = transformers.AutoModelForCausalLM.from_pretrained

    def spread(path: str, *, device_map: str | None = None, **more: Any) -> Any:
        if device_map is None:
            return load(path, **more)
        parts = {**PARTS, "lm_head": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
        return load(path, device_map=parts, offload_folder=str(tmp_path / "off"), **more)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", spread)


def measured(at: Path, name: str, *more: object) -> Path:
    how = ["-g", "2", "--max-new-tokens", "12", "--temperature", "0,1", "--threads", "1"]
    pair = ["-t", at / "t", "-d", at / "d", "-d", "self", "--dtype", "float64"]
    words = ["run", *pair, "--dataset", at / "p.txt", *how, "-o", at / name]
    ran = specbench(*words, "--engine", "transformers", *more)
    assert ran.code == 0, ran.err
    return at / name


@pytest.mark.usefixtures("split")
def test_a_target_over_two_devices_writes_the_same_in_the_same_cycles(at: Path) -> None:
    whole = measured(at, "whole")
    parts = measured(at, "parts", "--engine-arg", "device_map=auto")
    assert tokens(parts, 2) == tokens(whole, 2)
    for one, other in zip(summary(whole), summary(parts), strict=True):
        assert [one[name] for name in COUNTS] == [other[name] for name in COUNTS]
    told = json.loads((parts / "run.json").read_text())["engine"]
    assert (told["device_map"], told["parts"]) == ("auto", {"cpu": 5, "disk": 1})
    assert "device_map" not in json.loads((whole / "run.json").read_text())["engine"]


def test_one_device_takes_all_layers(at: Path) -> None:
    told = measured(at, "one", "--engine-arg", "device_map=auto") / "run.json"
    assert json.loads(told.read_text())["engine"]["parts"] == {"cpu": 1}


def test_a_map_that_is_none_is_refused(at: Path) -> None:
    words = ["run", "-t", at / "t", "-d", "self", "--engine", "transformers"]
    said = refused(*words, "--engine-arg", "device_map=all")
    assert said[0] == "error: --engine-arg device_map=all: not known"
    assert "auto, balanced, balanced_low_0, sequential" in said[-1]
