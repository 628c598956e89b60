"""W15, W18 and W19: how prompts went in, whether a pair was verified, and memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sample_run import Draft, build

from specbench.judgement.advise import Advice, advise
from specbench.judgement.run_notes import verify_command
from specbench.result_files.files import json_lines
from specbench.result_files.journal import amend
from specbench.result_files.results import load_run


def weighed(folder: Path, **manifest: Any) -> Advice:
    build(folder, {"d": Draft()}, gammas=[1], prompts=8, tokens=16)
    amend(folder, manifest)
    return advise(load_run(folder))


def seen(found: Advice, code: str) -> list[str]:
    return [line for w in found.warnings if w.code == code for line in w.lines()]


def test_a_chat_model_without_its_template(tmp_path: Path) -> None:
    """W15, with the first tokens of the first prompt; nothing where there is no template to use."""
    form = {"template": "left out", "bos_id": 1}
    first = next(json_lines(build_prompts(tmp_path / "x")))["prompt_token_ids"][:3]
    line, todo = seen(weighed(tmp_path / "a", prompt_form=form), "W15")
    shown = ", ".join(map(str, first))
    assert line == (
        f"warning W15: a chat model's prompts without its template; the first begins with {shown}"
    )
    assert todo == "  → drop --raw-prompt"
    for template in ("used", "none"):
        fine = weighed(tmp_path / template, prompt_form={"template": template, "bos_id": None})
        assert not seen(fine, "W15")
    assert not seen(weighed(tmp_path / "old"), "W15")


def build_prompts(folder: Path) -> Path:
    build(folder, {"d": Draft()}, gammas=[1], prompts=8, tokens=16)
    return folder / "prompts.jsonl"


def test_two_bos(tmp_path: Path) -> None:
    """W15: told by the ids; one BOS is as it should be."""
    path = build_prompts(tmp_path / "x")
    bos = next(json_lines(path))["prompt_token_ids"][0]
    form = {"template": "used", "bos_id": bos}
    assert not seen(weighed(tmp_path / "one", prompt_form=form), "W15")
    weighed(tmp_path / "two", prompt_form=form)
    file = tmp_path / "two" / "prompts.jsonl"
    first, *rest = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    first["prompt_token_ids"].insert(0, bos)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in (first, *rest)), encoding="utf-8")
    (line, _) = seen(advise(load_run(tmp_path / "two")), "W15")
    assert line.startswith(f"warning W15: two BOS before 1 prompt; the first begins with {bos}, ")


def test_a_pair_that_was_not_verified(tmp_path: Path) -> None:
    """W18 gives the command that does it, and is no reason to doubt a time."""
    line, todo = seen(weighed(tmp_path / "r", verified={}), "W18")
    assert line == "note W18: not verified: d"
    command = f"specbench verify -t embedded -d d=self --result {tmp_path / 'r'}"
    assert todo == f"  → {command}"
    assert not seen(weighed(tmp_path / "s", verified={"d": "lossless"}), "W18")


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("lossless", ""),
        ("not-lossless", "Not lossless, by specbench verify."),
        ("inconclusive", "Losslessness cannot be told, by specbench verify."),
    ],
)
def test_what_verify_found_is_said(tmp_path: Path, verdict: str, said: str) -> None:
    found = weighed(tmp_path / "r", verified={"d": verdict})
    text = " ".join(one.text for one in found.sentences())
    assert "Not checked" not in text
    assert text.endswith(said)
    assert ("specbench verify" in text) == bool(said)


def test_the_command_names_every_model_as_it_is_typed() -> None:
    drafts = [
        {"name": "a b", "kind": "hf", "ref": "./my model"},
        {"name": "synthetic:alpha=0.8", "kind": "synthetic", "alpha": 0.8},
        {"name": "org/name", "kind": "hf", "ref": "org/name"},
        {"name": "left", "kind": "self"},
    ]
    target = {"name": "m", "ref": "~/models/m"}
    recipe = {"target": target, "drafts": drafts}
    names = ["a b", "synthetic:alpha=0.8", "org/name"]
    assert verify_command({"recipe": recipe}, names) == (
        "specbench verify -t ~/models/m -d 'a b=./my model' -d synthetic:alpha=0.8 -d org/name"
    )
    short = {"target": recipe["target"], "drafts": [{"name": "ngram:3", "kind": "ngram", "max": 3}]}
    assert verify_command({"recipe": short}, ["ngram:3"]).endswith(" -d ngram:max=3")
    assert verify_command({}, names) == ""
    random = {"name": "x", "ref": "config:./x.json"}
    assert verify_command({"recipe": {**recipe, "target": random}}, names) == ""
    assert verify_command({"recipe": recipe}, []) == ""


def test_the_command_names_the_engine_of_the_run() -> None:
    """Else it is refused: a verdict belongs to the engine that was measured."""
    recipe = {
        "target": {"name": "m", "ref": "m"},
        "drafts": [{"name": "ngram", "kind": "ngram"}],
        "measure": {"engine_args": ["url.0=http://a", "restart=./a {gamma}", "vllm.x=1"]},
    }
    served = {"recipe": recipe, "settings": {"engine": "server"}}
    assert verify_command(served, ["ngram"]) == (
        "specbench verify -t m -d ngram --engine server --engine-arg url.0=http://a "
        "--engine-arg 'restart=./a {gamma}'"
    )
    vllm = verify_command({**served, "settings": {"engine": "vllm"}}, ["ngram"])
    assert vllm.endswith(
        " --engine vllm --engine-arg url.0=http://a "
        "--engine-arg 'restart=./a {gamma}' --engine-arg x=1"
    )
    own = verify_command({**served, "settings": {"engine": "torch"}}, ["ngram"])
    assert own == "specbench verify -t m -d ngram"


@pytest.mark.parametrize(("limit", "told"), [(0.1, True), (0.5, False), (None, False)])
def test_memory_near_its_limit(tmp_path: Path, limit: float | None, told: bool) -> None:
    """W19 from 95 % on: the highest peak of the run against what the machine has."""
    environment = {"cores": 2, "memory_gb": limit}
    weighed(tmp_path / "r", environment=environment)
    path = tmp_path / "r" / "generations.csv"
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    place = header.split(",").index("peak_memory_mb")
    changed = [row.split(",") for row in rows]
    for row in changed:
        row[place] = "100.0"
    path.write_text("\n".join([header, *map(",".join, changed)]) + "\n", encoding="utf-8")
    lines = seen(advise(load_run(tmp_path / "r")), "W19")
    assert bool(lines) == told
    if told:
        assert lines[0] == "warning W19: peak memory 0.1 of 0.1 GB"
