"""`specbench advise`: the flags of each engine, its count of γ and its rule, and refusals."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sample_run import Draft, build
from test_advise import KEYS
from test_import import PLAIN, SERVED, TWO, lines, sglang, specbench

from specbench.deployment.deploy import DEFAULTS, Deployment, answers, cautions_of
from specbench.deployment.deploy_engines import plan
from specbench.deployment.deploy_plan import NAMES

__all__ = ["specbench"]
ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "embedded"
HF = {"target": "acme/big", "draft": "small", "ref": "acme/small", "kind": "hf", "gamma": 5}
EVIL = "a b'; rm -rf ~ #\"$(x)`y`"


def cell(**changed: Any) -> Deployment:
    return Deployment(**{**HF, "temperature": 0.0, "dtype": "bfloat16", **changed})


def words(command: str) -> list[str]:
    """What a shell makes of a command."""
    done = subprocess.run(
        ["bash", "-c", f'printf "%s\\0" {command}'], capture_output=True, text=True, check=True
    )
    return done.stdout.split("\0")[:-1]


def sglang_flags(command: str) -> argparse.Namespace:
    """Read as SGLang reads it: its own parser takes these flags and types."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--dtype")
    parser.add_argument("--speculative-algorithm")
    parser.add_argument("--speculative-draft-model-path")
    for name in ("num-steps", "eagle-topk", "num-draft-tokens", "ngram-max-bfs-breadth"):
        parser.add_argument(f"--speculative-{name}", type=int)
    for name in ("single", "acc"):
        parser.add_argument(f"--speculative-accept-threshold-{name}", type=float)
    return parser.parse_args(words(command)[3:])


def test_vllm_takes_gamma_as_it_is() -> None:
    found = plan("vllm", cell())
    program, verb, target, *flags = words(found.command)
    assert (program, verb, target, flags[:2]) == (
        "vllm",
        "serve",
        "acme/big",
        ["--dtype", "bfloat16"],
    )
    assert flags[2] == "--speculative-config"
    wanted = {"method": "draft_model", "model": "acme/small", "num_speculative_tokens": 5}
    assert json.loads(flags[3]) == wanted
    assert found.rule.startswith("greedy")
    sampled = plan("vllm", cell(temperature=0.7))
    config = json.loads(words(sampled.command)[-1])
    assert config["draft_sample_method"] == "probabilistic"
    assert config["rejection_sample_method"] == "standard"
    assert "rejection sampling" in sampled.rule


def test_sglang_counts_one_more_than_gamma() -> None:
    found = sglang_flags(plan("sglang", cell()).command)
    assert found.speculative_algorithm == "STANDALONE"
    assert found.speculative_num_steps == 5
    assert found.speculative_num_draft_tokens == 6
    assert found.speculative_eagle_topk == 1
    assert found.speculative_accept_threshold_single == found.speculative_accept_threshold_acc == 1
    ngram = sglang_flags(plan("sglang", cell(kind="ngram", ref="")).command)
    assert (ngram.speculative_algorithm, ngram.speculative_num_draft_tokens) == ("NGRAM", 6)
    sampled = plan("sglang", cell(temperature=1.0))
    assert "one-hot q" in sampled.rule
    assert any("typical acceptance" in one for one in sampled.cautions)


def test_llamacpp_has_its_early_stop_off() -> None:
    found = plan("llamacpp", cell(target="big.gguf", ref="dir/small.gguf"))
    flags = words(found.command)[1:]
    given = dict(zip(flags[::2], flags[1::2], strict=True))
    assert given == {
        "--model": "big.gguf",
        "--spec-type": "draft-simple",
        "--spec-draft-model": "dir/small.gguf",
        "--spec-draft-n-max": "5",
        "--spec-draft-n-min": "0",
        "--spec-draft-p-min": "0",
    }
    assert not any("GGUF files" in one for one in found.cautions)
    converted = plan("llamacpp", cell(temperature=1.0))
    assert "exact match" in converted.rule
    assert "--model big.gguf" in converted.command
    assert any("GGUF files" in one for one in converted.cautions)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
@pytest.mark.parametrize("name", [EVIL, "-x", "~/my models/d", "naïve/模型", "a\\b"])
def test_names_stay_one_word_of_the_shell(engine: str, name: str, tmp_path: Path) -> None:
    found = plan(engine, cell(target=name, ref=name))
    done = subprocess.run(
        ["bash", "-c", f'HOME=/h; printf "%s\\0" {found.command}'],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    shown = done.stdout.split("\0")[:-1]
    wanted = name.replace("~/", "/h/") if name.startswith("~/") else name
    wanted = f"./{wanted}" if name == "-x" else wanted
    if engine == "llamacpp":
        assert f"{wanted.rpartition('/')[2]}.gguf" in shown
    else:
        assert wanted in shown
    if engine == "vllm":
        assert json.loads(shown[-1])["model"] == (f"./{name}" if name == "-x" else name)
    assert not list(tmp_path.iterdir())


def test_names_in_python_are_literals() -> None:
    found = plan("transformers", cell(target=EVIL, ref="~/x'y", temperature=0.7))
    compile(found.command, "advice", "exec")
    assert repr(EVIL) in found.command
    assert "temperature=0.7, top_k=0, top_p=1.0" in found.command
    file = plan("transformers", cell(ref="dir/small.gguf"))
    assert "from_pretrained('dir', gguf_file='small.gguf', dtype='bfloat16')" in file.command


def test_control_characters_in_a_name_are_refused() -> None:
    for engine in NAMES:
        assert "control characters" in plan(engine, cell(ref="a\nb")).refused
        assert "control characters" in plan(engine, cell(target="a\x1b[31m")).refused


@pytest.mark.parametrize("engine", NAMES)
@pytest.mark.parametrize("kind", ["sparsekv", "external", "layerskip", "quantized", "eagle"])
def test_kinds_without_a_counterpart_are_refused_in_words(engine: str, kind: str) -> None:
    found = plan(engine, cell(kind=kind))
    assert (found.command, found.settings) == ("", {})
    assert len(found.refused) > 20


def test_what_an_engine_lacks_is_refused_by_that_engine_alone() -> None:
    refused = {e for e in NAMES if plan(e, cell(kind="suffix", ref="")).refused}
    assert refused == {"sglang", "llamacpp", "transformers"}
    assert (
        "suffix drafts have no counterpart in SGLang" in plan("sglang", cell(kind="suffix")).refused
    )
    assert "batch 1 only" in plan("transformers", cell(batch_size=4)).refused
    assert not plan("vllm", cell(batch_size=4)).refused
    assert "not named" in plan("vllm", cell(ref="")).refused


def test_an_unknown_temperature_leaves_both_rules_open() -> None:
    for engine in NAMES:
        found = plan(engine, cell(temperature=None))
        assert found.rule.startswith("at temperature 0 a draft is kept iff")
        assert "do_sample" not in found.command
    assert "--target" in plan("vllm", cell(target="")).refused


def test_defaults_are_those_of_the_drafts_that_were_measured() -> None:
    """Engines have other defaults, so that the measured ones must be told."""
    for kind, defaults in DEFAULTS.items():
        text = (ROOT / "specbench" / "drafts" / f"{kind}.py").read_text(encoding="utf-8")
        for name, value in defaults.items():
            assert re.search(rf'\(options, "{name}", {re.escape(repr(value))}, ', text)
    config = plan("vllm", cell(kind="suffix", ref="", options=DEFAULTS["suffix"])).settings
    assert config["speculative_config"] == {
        "method": "suffix",
        "num_speculative_tokens": 5,
        "suffix_decoding_max_spec_factor": 4.0,
        "suffix_decoding_min_token_prob": 0.1,
    }


def test_ngram_windows_go_under_each_engines_names() -> None:
    one = cell(kind="ngram", ref="", options={"min": 2, "max": 4})
    assert plan("vllm", one).settings["speculative_config"] == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }
    found = plan("transformers", one)
    assert "prompt_lookup_num_tokens=5, max_matching_ngram_size=4, do_sample=False" in found.command
    assert plan("llamacpp", one).settings["spec-ngram-simple-size-m"] == 5


def test_transformers_drafts_exactly_gamma_by_these_lines() -> None:
    """The lines are run on the embedded pair; every draft is then γ tokens long, cut at the end."""
    import torch
    from transformers.generation.candidate_generator import AssistedCandidateGenerator

    folder = ROOT / "specbench" / "embedded"
    one = cell(target=str(folder / "target"), ref=str(folder / "draft"), gamma=3, dtype="float32")
    command = plan("transformers", one).command.replace("**inputs", "**inputs, max_new_tokens=24")
    drafted: list[int] = []
    original = AssistedCandidateGenerator.get_candidates

    def watched(self: Any, input_ids: Any, *rest: Any, **named: Any) -> Any:
        found = original(self, input_ids, *rest, **named)
        drafted.append(found[0].shape[1] - input_ids.shape[1])
        return found

    inputs = {"input_ids": torch.tensor([[5, 6, 7, 8]])}
    scope: dict[str, Any] = {"inputs": inputs}
    AssistedCandidateGenerator.get_candidates = watched
    try:
        exec(compile(command, "advice", "exec"), scope)
    finally:
        AssistedCandidateGenerator.get_candidates = original
    plain = scope["target"].generate(**inputs, max_new_tokens=24, do_sample=False)
    assert torch.equal(plain, scope["output"])
    assert len(drafted) > 3
    assert set(drafted[:-2]) == {3}


def test_the_committed_result_is_advised_in_both_settings(specbench: Any) -> None:
    code, out, err = specbench("advise", RESULT, "--format", "json")
    assert (code, err) == (0, "")
    rows = json.loads(out)
    assert [row["setting"] for row in rows] == ["temperature 0", "temperature 1"]
    for row in rows:
        assert row["speculate"]
        config = row["engines"]["vllm"]["settings"]["speculative_config"]
        assert config["num_speculative_tokens"] == row["gamma"]
        tokens = row["engines"]["sglang"]["settings"]["speculative-num-draft-tokens"]
        assert tokens == row["gamma"] + 1
        assert any("batch 1" in one for one in row["cautions"])
        assert any("float32 on cpu" in one for one in row["cautions"])


def test_text_fits_and_markdown_is_fenced(specbench: Any) -> None:
    code, out, _ = specbench("advise", RESULT, "--engine", "sglang")
    assert (code, "vllm serve" in out) == (0, False)
    assert "num-draft-tokens is γ + 1" in out
    code, out, _ = specbench("advise", RESULT, "--format", "md")
    assert out.count("```sh\n") == 6
    assert out.count("```python\n") == 2
    assert "/root" not in out
    assert str(Path.home()) + "/" not in out


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("loses", "Do not speculate here: plain decoding is at least as fast."),
        ("no_difference", "Do not speculate here: plain decoding is at least as fast."),
        ("may_lose", "Whether a draft pays here cannot be told yet."),
        ("cannot_tell", "Whether a draft pays here cannot be told yet."),
    ],
)
def test_where_no_draft_pays_there_are_no_flags(
    specbench: Any, tmp_path: Path, key: str, said: str
) -> None:
    build(tmp_path / "run", {"d": KEYS[key][0]}, tokens=24, gammas=[1], prompts=12)
    (answer,) = answers(tmp_path / "run")
    assert answer.reason.startswith(said)
    assert answer.deployment is None
    code, out, _ = specbench("advise", tmp_path / "run")
    assert (code, "vllm" in out.lower()) == (0, False)
    assert said.split(":")[0] in out


def test_a_win_that_is_not_sure_carries_a_caution(tmp_path: Path) -> None:
    build(tmp_path / "run", {"d": KEYS["may_win"][0]}, tokens=24, gammas=[1], prompts=12)
    (answer,) = answers(tmp_path / "run")
    assert answer.deployment is not None
    assert "does not clear 1" in answer.cautions[0]


def imported(specbench: Any, tmp_path: Path, text: str, *flags: object) -> Path:
    (tmp_path / "file").write_text(text)
    code, _, err = specbench("import", tmp_path / "file", "-o", tmp_path / "out", *flags)
    assert (code, err) == (0, "")
    return tmp_path / "out"


def test_an_imported_result_deploys_where_it_was_measured(specbench: Any, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text(json.dumps(PLAIN))
    flags = ("--baseline", tmp_path / "plain", "--draft", "acme/eagle")
    folder = imported(specbench, tmp_path, json.dumps(SERVED), *flags)
    (row,) = json.loads(specbench("advise", folder, "--format", "json")[1])
    assert (row["speculate"], row["gamma"], row["speedup"]) == (True, 3, 2.0)
    config = row["engines"]["vllm"]["settings"]["speculative_config"]
    assert config == {"model": "acme/eagle", "num_speculative_tokens": 3}
    assert "--kind" in row["engines"]["sglang"]["refused"]
    assert any("no interval" in one for one in row["cautions"])
    (row,) = json.loads(specbench("advise", folder, "--format", "json", "--kind", "hf")[1])
    assert "STANDALONE" in row["engines"]["sglang"]["command"]


def test_an_imported_result_that_loses_or_has_no_speedup(specbench: Any, tmp_path: Path) -> None:
    slow = lines(sglang(0, 0, 0, 1.0, 0.02), sglang(2, 1, 3, 1.2, 0.03))
    code, out, _ = specbench("advise", imported(specbench, tmp_path, slow))
    assert (code, out.startswith("Do not speculate here")) == (0, True)
    other = tmp_path / "other"
    other.mkdir()
    code, out, err = specbench("advise", imported(specbench, other, TWO))
    assert (code, out) == (2, "")
    assert "holds no speedup" in err
    assert "--baseline" in err


def test_each_setting_of_an_imported_result_has_its_answer(specbench: Any, tmp_path: Path) -> None:
    """A draft that pays at batch 1 and loses at batch 8; a tree, whose γ no chain has."""
    wins, loses = sglang(3, 1, 4, 2.0, 0.01), sglang(3, 1, 4, 1.2, 0.03)
    tree = sglang(3, 8, 32, 3.0, 0.005)
    plain = sglang(0, 0, 0, 1.0, 0.02)
    eight = {"batch_size": 8}
    text = lines(plain, wins, tree, plain | eight, loses | eight)
    folder = imported(specbench, tmp_path, text)
    rows = json.loads(specbench("advise", folder, "--format", "json", "--kind", "hf")[1])
    told = [(row["setting"].rpartition(", ")[2], row["speculate"], row["gamma"]) for row in rows]
    assert told == [("batch 1", None, None), ("batch 1", True, 3), ("batch 8", False, None)]
    assert "γ is not known" in rows[0]["reason"]


def test_checks_are_never_deployed(tmp_path: Path) -> None:
    """A draft that is the target itself wins here, and is none."""
    build(tmp_path / "run", {"d": KEYS["wins"][0]}, tokens=24, gammas=[1], prompts=12)
    path = tmp_path / "run" / "run.json"
    manifest = json.loads(path.read_text())
    manifest["drafts"]["d"]["kind"] = "self"
    path.write_text(json.dumps(manifest))
    (tmp_path / "run" / "summary.csv").unlink(missing_ok=True)
    (answer,) = answers(tmp_path / "run")
    assert answer.deployment is None
    assert "nothing but checks was measured (self)" in answer.reason


def test_a_prediction_is_refused(tmp_path: Path, specbench: Any) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": 1, "kind": "rank"}))
    code, _, err = specbench("advise", tmp_path)
    assert (code, "holds a prediction" in err) == (2, True)


def test_misuse_is_told_in_one_message(specbench: Any, tmp_path: Path) -> None:
    assert specbench("advise", tmp_path)[0] == 2
    code, _, err = specbench("advise", RESULT, "--kind", "hf")
    assert (code, err.count("error:")) == (2, 1)
    assert specbench("advise", RESULT, "--engine", "tgi")[0] == 2


def test_cautions_name_what_was_measured() -> None:
    said = " ".join(cautions_of(cell(batch_size=1, device="cpu", loop="torch")))
    assert re.search(r"measured in bfloat16 on cpu, specbench's own loop", said)
    assert "at batch 1" in said
    assert "temperature 0" in said


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; sys.argv = ['specbench', 'advise', sys.argv[1], '--engine', 'vllm']\n"
        "from specbench.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "print(sorted({'torch', 'transformers', 'datasets'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(RESULT)], cwd=ROOT, capture_output=True, check=True
    )
    assert done.stdout.decode().splitlines()[-1] == "[]"


def test_few_prompts_are_the_reason_where_the_interval_clears_1(tmp_path: Path) -> None:
    """It said that the interval does not clear 1, beside an interval above 1."""
    folder = build(tmp_path / "r", {"d": Draft()}, gammas=[4], prompts=5, tokens=48)
    (answer,) = answers(folder)
    assert answer.speedup is not None
    assert (answer.speedup.low or 0) > 1
    text = " ".join(answer.cautions)
    assert "from fewer than 8 prompts" in text
    assert "does not clear 1" not in text
