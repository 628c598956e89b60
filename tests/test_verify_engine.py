"""`verify --engine`: other engines' texts against the law here, plain decoding beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import models
import numpy as np
import pytest
from cli_runs import Ran, lines, measure, refused, specbench

from specbench import engine_table
from specbench.engines.transformers_engine import TransformersEngine
from specbench.laws.faults import Laws
from specbench.laws.law_tests import LawTest
from specbench.laws.text_tests import TextSums
from specbench.laws.verified import Verified
from specbench.records import Cell, Generation, Prompt, Sampling
from specbench.verification.verify_engine import EngineWork
from specbench.verification.verify_text import untold
from specbench.verification.verify_words import paragraphs

Change = Any
WRITE = TransformersEngine.generate
TEXT = "own text: token log probability"


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RND(0) as `t`, NOISY as `d`, and prompts."""
    folder = tmp_path_factory.mktemp("verify-engine")
    models.save(models.rnd(), folder / "t")
    models.save(models.noisy(models.rnd(), 0.1), folder / "d")
    lines(folder / "p.txt", *[f"w{i} w{i % 7 + 2} w9" for i in range(1, 11)])
    return folder


def verified(at: Path, *more: object, engine: str = "transformers") -> Ran:
    """10 texts of 25 tokens at temperature 0 and 1, γ 3."""
    pair = ["-t", at / "t", "-d", at / "d", "--dataset", at / "p.txt", "--engine", engine]
    size = ["--max-new-tokens", "25", "--threads", "1", "-g", "3", "--ignore-eos"]
    return specbench("verify", *pair, *size, "--temperature", "0,1", *more)


def named(ran: Ran) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(ran.out)["tests"]}


def changed(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """The engine with something else behind its name."""
    monkeypatch.setattr(TransformersEngine, "generate", change)


def cooler(plain: bool) -> Change:
    """Texts at 0.7 of the temperature that was asked for; of plain decoding too, or not."""

    def generate(
        self: TransformersEngine, cell: Cell, prompts: Sequence[Prompt], repeat: int
    ) -> list[Generation]:
        if (cell.gamma or plain) and cell.sampling.temperature:
            cell = replace(cell, sampling=Sampling(0.7 * cell.sampling.temperature))
        return WRITE(self, cell, prompts, repeat)

    return generate


def test_a_right_engine_is_lossless(at: Path) -> None:
    """Plain decoding and speculation, all seventeen tests of a pair whose cycles are told."""
    ran = verified(at, "--format", "json")
    assert ran.code == 0, ran.err + ran.out
    names = list(named(ran))
    assert len(names) == len(set(names)) == 1 + 3 + 17 + 3
    groups = {name.partition(":")[0] for name in names}
    assert groups == {"plain text", "own text", "greedy"}
    assert json.loads(ran.out)["verdict"] == "lossless"


def test_a_fault_of_speculation_is_not_lossless(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its texts are cooler than asked for, plain ones are right: found, and found again."""
    changed(monkeypatch, cooler(plain=False))
    ran = verified(at, "--format", "json")
    assert ran.code == 3, ran.err + ran.out
    found = named(ran)
    assert not found[TEXT]["passed"]
    plain = [one for name, one in found.items() if name.startswith("plain")]
    assert all(one["passed"] for one in plain)


def test_what_plain_decoding_does_too_is_left_open(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are cooler: another law than the one here, and none of speculation's doing."""
    changed(monkeypatch, cooler(plain=True))
    ran = verified(at)
    assert ran.code == 4, ran.err + ran.out
    said = " ".join(ran.out.split())
    assert "plain decoding of transformers leaves the law that is computed here" in said
    assert "Not lossless" not in said
    assert "on the rerun" not in said


def lower_token(
    self: TransformersEngine, cell: Cell, prompts: Sequence[Prompt], repeat: int
) -> list[Generation]:
    """One token of each speculative greedy text is another one."""
    found = WRITE(self, cell, prompts, repeat)
    if not cell.gamma or not cell.sampling.greedy:
        return found
    return [
        replace(one, token_ids=(*one.token_ids[:5], one.token_ids[5] ^ 1, *one.token_ids[6:]))
        for one in found
    ]


def test_a_wrong_greedy_token_is_found(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, lower_token)
    ran = verified(at, "--format", "json")
    assert ran.code == 3, ran.err + ran.out
    found = named(ran)
    assert not found["greedy: same text up to a near tie"]["passed"]
    assert found["plain text: every token within 1 of the top"]["passed"]


def tokens_alone(
    self: TransformersEngine, cell: Cell, prompts: Sequence[Prompt], repeat: int
) -> list[Generation]:
    """What an engine that tells no cycles gives."""
    return [replace(one, cycles=()) for one in WRITE(self, cell, prompts, repeat)]


@pytest.mark.parametrize("same", [True, False])
def test_tokens_alone_are_tested(at: Path, monkeypatch: pytest.MonkeyPatch, same: bool) -> None:
    """By the draft's law at every token where the engine has that draft, else by the target's."""
    row = engine_table.ENGINES["transformers"]
    differs = {} if same else {"hf": "a draft of its own"}
    other = replace(row, cycles=False, differs=differs)
    monkeypatch.setitem(engine_table.ENGINES, "transformers", other)
    changed(monkeypatch, tokens_alone)
    ran = verified(at, "--format", "json")
    assert ran.code == 0, ran.err + ran.out
    own = {name for name in named(ran) if name.startswith("own text")}
    assert "own text: draft log probability" not in own
    assert "own text: bonus from the draft" not in own
    assert ("own text: no residual" in own) == same
    assert ("own text: ranks by p" in own) == (not same)


def silent(
    self: TransformersEngine, cell: Cell, prompts: Sequence[Prompt], repeat: int
) -> list[Generation]:
    """What a server that tells no ids gives."""
    found = WRITE(self, cell, prompts, repeat)
    return [replace(one, cycles=(), token_ids=(), text="w1") for one in found]


def test_a_text_without_ids_is_left_open(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, silent)
    ran = verified(at)
    assert ran.code == 4, ran.err + ran.out
    assert "does not tell the ids of its tokens" in " ".join(ran.out.split())


def test_a_verdict_goes_to_a_run_of_the_same_engine(at: Path, tmp_path: Path) -> None:
    """Not to that of our own loop."""
    out = tmp_path / "o"
    measure(out, at / "t", [at / "d"], at / "p.txt")
    pair = ["-t", at / "t", "-d", at / "d", "--dataset", at / "p.txt", "--max-new-tokens", "8"]
    said = refused("verify", *pair, "--engine", "transformers", "--result", out)
    assert "that run is of the engine torch" in said[0]


def test_what_an_engine_cannot_do_is_refused(at: Path) -> None:
    """Before anything is loaded; several engines are verified one by one."""
    pair = ["-t", at / "t", "--dataset", at / "p.txt"]
    said = refused("verify", *pair, "-d", "suffix", "--engine", "transformers")
    assert "no draft of kind suffix" in said[0]
    said = refused("verify", *pair, "-d", at / "d", "--engine", "torch,transformers")
    assert "one engine at a time" in said[0]


def work_of(texts: Sequence[Generation], eos: Sequence[int]) -> EngineWork:
    """What reads these texts of an engine, beside a target with these EOS ids."""
    writer = SimpleNamespace(generate=lambda *_: list(texts))
    recipe = SimpleNamespace(measure=SimpleNamespace(batch_size=(1,)))
    ready: Any = SimpleNamespace(engine=writer, prompts=(object(),), recipe=recipe)
    loaded: Any = SimpleNamespace(eos=frozenset(eos), target=SimpleNamespace(vocab_size=9))
    return EngineWork(ready, (1,), lambda _: None, loaded=loaded)


@pytest.mark.parametrize(
    ("ids", "eos", "given"),
    [((4, 5), (2,), (4, 5, 2)), ((4, 2), (2,), (4, 2)), ((4, 5), (2, 3), None)],
)
def test_the_id_that_ended_a_text_is_a_draw_too(
    ids: tuple[int, ...], eos: tuple[int, ...], given: tuple[int, ...] | None
) -> None:
    """Leaving it out would make every other token look too likely."""
    text = Generation("a", 0, (1,), token_ids=ids, finish_reason="eos")
    work = work_of([text], eos)
    found = [one.token_ids for one in work.written(Cell("d", 1, Sampling()), 0)]
    assert found == ([] if given is None else [given])
    assert bool(work.missing) == (given is None)


def test_ids_that_the_target_does_not_have_are_left_open() -> None:
    """They have no place in its law."""
    texts = [Generation(str(one), 0, (1,), token_ids=(4, one)) for one in (8, 9)]
    work = work_of(texts, (2,))
    assert [one.prompt_id for one in work.written(Cell("d", 1, Sampling()), 0)] == ["8"]
    assert work.missing == ["d: the engine gives ids that the target does not have"]


def test_what_the_targets_law_alone_cannot_show_is_said() -> None:
    """Where no draft's law was looked at, no power against faults of the keep test is claimed."""
    seen = LawTest("own text", "token log probability", 0.1, 99, 0.5, "ok", 0.098)
    ranks = LawTest("own text", "ranks by p", 0.1, 99, 0.5, "ok", 0.2)
    keep = LawTest("own text", "no residual", 0.1, 99, 0.5, "ok", 0.05)
    for tests, claimed in (((seen, ranks), False), ((seen, ranks, keep), True)):
        found = Verified("t", ("d",), (4,), "", 0, tests, (), (), "server")
        said = " ".join(one.text for one in paragraphs(found))
        assert ("a known fault would have been found" in said) == claimed
        assert (
            "changed temperature would have been found from a total variation of 0.098" in said
        ) != claimed


def test_ranks_by_p_alone() -> None:
    """Draws from p pass; the second of two tokens at every place does not; no draft is named."""
    random = np.random.default_rng(0)
    p = random.dirichlet(np.ones(8), 2000)
    laws = Laws(p, np.full_like(p, 1 / 8), p)
    right, wrong = TextSums(drafted=False), TextSums(drafted=False)
    drawn = np.array([random.choice(8, p=row) for row in p])
    second = np.argsort(p, axis=1)[:, -2]
    for sums, ids in ((right, drawn), (wrong, second)):
        sums.add(laws, untold(ids.tolist()), random.random(len(ids)))
    found = {one.name: one.p_value or 0.0 for one in right.tests()}
    assert list(found) == ["token log probability", "ranks by p"]
    assert min(found.values()) > 1e-3
    assert all((one.p_value or 0.0) < 1e-12 for one in wrong.tests())


def test_lossy_settings_of_an_engine_are_named() -> None:
    """Where a server's texts are off, what it may have been told to do comes first."""
    bug = LawTest("own text", "token log probability", 9.0, 99, 0.0, "bug", 0.1)
    found = Verified("t", ("d",), (4,), "", 0, (bug,), (), (), "server")
    said = " ".join(one.text for one in paragraphs(found))
    assert "SGLang's --speculative-accept-threshold-single" in said
    assert "lossy by design" in said


def test_an_engine_that_restarts_writes_one_gamma_after_the_other(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three repeats of two γ are two turns of each law, and not six."""
    seen: list[tuple[float, int]] = []

    def noted(
        self: TransformersEngine, cell: Cell, prompts: Sequence[Prompt], repeat: int
    ) -> list[Generation]:
        here = (cell.sampling.temperature, cell.gamma)
        if not seen or seen[-1] != here:
            seen.append(here)
        return WRITE(self, cell, prompts, repeat)

    changed(monkeypatch, noted)
    monkeypatch.setattr(TransformersEngine, "in_turn", True, raising=False)
    assert verified(at, "-g", "1,2", "--repeats", "3", "-n", "2", "--temperature", "1").code in (
        0,
        4,
    )
    assert seen == [(0.0, 0), (1.0, 0), (0.0, 1), (0.0, 2), (1.0, 1), (1.0, 2)]
