"""The scoring pass against whole forwards of stock models, position by position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import models
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from cli_runs import lines, measure

from specbench.measure import score
from specbench.measure.score import TextScorer, chunk_of
from specbench.models.lm import Reader, Session
from specbench.records import Sampling

PROMPT = [1, 5, 9]
CHUNK = 64
FLOATS = npt.NDArray[np.float64]


def text(length: int = CHUNK + 9) -> list[int]:
    return np.random.default_rng(2).integers(0, 32, length).tolist()


def stock_laws(model: Any, prompt: Sequence[int], emitted: Sequence[int]) -> FLOATS:
    """Probabilities at temperature 1 before each emitted token, from one forward without cache."""
    ids = torch.tensor([[*prompt, *emitted]])
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    found: FLOATS = logits.double().softmax(dim=-1).numpy()
    return found


def bent(laws: FLOATS, law: Sampling) -> FLOATS:
    """Temperature, then top-k, then top-p, written out with loops."""
    rows = []
    for row in laws:
        weight = row ** (1 / law.temperature)
        weight = weight / weight.sum()
        order = sorted(range(len(weight)), key=lambda i: (-weight[i], i))
        kept = order[: law.top_k] if law.top_k else order
        weight = np.where(np.isin(range(len(weight)), kept), weight, 0.0)
        weight = weight / weight.sum()
        mass, chosen = 0.0, []
        for i in order:
            if mass >= law.top_p:
                break
            chosen.append(i)
            mass += weight[i]
        weight = np.where(np.isin(range(len(weight)), chosen), weight, 0.0)
        rows.append(weight / weight.sum())
    return np.array(rows)


LAWS = [Sampling(1.0), Sampling(0.7), Sampling(1.5, top_k=9), Sampling(1.0, top_p=0.8)]


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
@pytest.mark.parametrize("law", LAWS)
def test_every_number_is_that_of_whole_forwards(
    family: str, law: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a chunk's border; the sliding windows of Mistral and Gemma are crossed."""
    monkeypatch.setattr(score, "MOST", CHUNK)
    p_model, q_model = models.rnd(family), models.noisy(models.rnd(family), 0.2)
    emitted = text()
    tested = np.where(np.arange(len(emitted)) % 3 == 0, np.array(emitted) * 5 % 32, -1)
    target = models.lm(p_model)
    found = TextScorer(target, models.drafter(q_model, target), law).score(PROMPT, emitted, tested)
    p = bent(stock_laws(p_model, PROMPT, emitted), law)
    q = bent(stock_laws(q_model, PROMPT, emitted), law)
    at = np.arange(len(emitted)), np.array(emitted)
    with np.errstate(divide="ignore", invalid="ignore"):
        want = {
            "log_p": np.where(p[at] > 0, np.log(p[at]), np.nan),
            "log_q": np.where(q[at] > 0, np.log(q[at]), np.nan),
            "overlap": np.minimum(p, q).sum(axis=1),
            "s": np.where(p[at] > 0, np.minimum(1, q[at] / p[at]), 1.0),
            "entropy": -np.where(p > 0, p * np.log(p), 0.0).sum(axis=1),
            "confidence": q.max(axis=1),
        }
    for name, value in want.items():
        np.testing.assert_allclose(getattr(found, name), value, atol=1e-9, err_msg=name)
    place = np.flatnonzero(tested >= 0)
    drafted = place, tested[place]
    positive = q[drafted] > 0
    ratio = np.minimum(1, p[drafted][positive] / q[drafted][positive])
    np.testing.assert_allclose(found.keep[place][positive], ratio, atol=1e-9)
    assert np.isnan(found.keep[tested < 0]).all()


def test_greedy_laws_are_one_hot_and_confidence_is_of_the_logits() -> None:
    p_model, q_model = models.rnd(), models.noisy(models.rnd(), 0.2)
    emitted = models.plain(p_model, PROMPT, 30)
    target = models.lm(p_model)
    none = np.full(30, -1)
    found = TextScorer(target, models.drafter(q_model, target), Sampling(0.0)).score(
        PROMPT, emitted, none
    )
    q = stock_laws(q_model, PROMPT, emitted)
    agreed = q.argmax(axis=1) == np.array(emitted)
    assert 0 < agreed.sum() < 30
    assert found.log_p.tolist() == [0.0] * 30
    assert found.s.tolist() == agreed.astype(float).tolist()
    assert found.overlap.tolist() == agreed.astype(float).tolist()
    np.testing.assert_allclose(found.confidence, q.max(axis=1), atol=1e-9)


def test_ids_above_the_draft_have_no_probability_and_end_it() -> None:
    """q is 0 from the first id on that the draft cannot be fed; target ids keep their law."""
    target = models.lm(models.rnd())
    draft = models.drafter(models.build("llama", 3, 24).double(), target)
    emitted = [3, 7, 30, 4, 5]
    found = TextScorer(target, draft, Sampling(1.0)).score(PROMPT, emitted, np.full(5, -1))
    assert (found.overlap[:3] > 0).all()
    assert found.overlap[3:].tolist() == [0.0, 0.0]
    assert np.isnan(found.log_q[2:]).all()
    assert found.confidence[3:].tolist() == [0.0, 0.0]
    assert np.isfinite(found.log_p).all()


def test_the_keep_probability_where_a_law_is_zero() -> None:
    """Trap 2: u·q < p at p = 0, q = 0 and both: rejected, kept, rejected; never 0/0."""
    p = torch.tensor([[0.6, 0.4, 0.0, 0.0]] * 5, dtype=torch.float64)
    q = torch.tensor([[0.3, 0.0, 0.7, 0.0]] * 5, dtype=torch.float64)
    drafted = torch.tensor([0, 1, 2, 3, -1])
    rows = score.pair_rows(p, (q, q[:, 0]), torch.zeros(5, dtype=torch.int64), drafted)
    keep = rows[5].tolist()
    assert keep[:4] == [1.0, 1.0, 0.0, 0.0]
    assert math.isnan(keep[4])


def test_a_target_alone_gives_its_own_numbers() -> None:
    target = models.lm(models.rnd())
    found = TextScorer(target, None, Sampling(1.0)).score(PROMPT, text(10), np.full(10, -1))
    assert np.isfinite(found.log_p).all()
    assert (found.entropy > 0).all()
    assert np.isnan(found.overlap).all()
    assert np.isnan(found.confidence).all()
    empty = TextScorer(target, None, Sampling(1.0)).score(PROMPT, [], np.empty(0, np.int64))
    assert len(empty) == 0


def test_numbers_do_not_depend_on_what_was_read_before() -> None:
    """To the last bit: a run that was resumed scores as one that was not. Prompts are fed once."""
    target = models.lm(models.build())
    texts = [([1, 5, 9, 4], text(70)), ([1, 5, 9, 4], text(20)), ([2, 2], text(300)), ([7], [3])]
    fresh = [list(Reader(target).along(*_whole(*one), CHUNK)) for one in texts]
    reader = Reader(target)
    for place in (0, 1, 2, 1, 0, 3, 0):
        again = list(reader.along(*_whole(*texts[place]), CHUNK))
        for (at, logits), (where, want) in zip(again, fresh[place], strict=True):
            assert at == where
            assert torch.equal(logits, want)


def _whole(prompt: list[int], emitted: list[int]) -> tuple[torch.Tensor, int, int]:
    return torch.tensor([[*prompt, *emitted]]), len(prompt), len(prompt) + len(emitted)


def test_a_prompt_is_fed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []
    real = Session.prefill
    monkeypatch.setattr(
        Session, "prefill", lambda self, ids, n: (fed.append(n), real(self, ids, n))[1]
    )
    reader = Reader(models.lm(models.rnd()))
    for prompt in ([1, 2, 3], [1, 2, 3], [1, 2, 4, 5], [1, 2, 4, 5], [1, 2, 3]):
        list(reader.along(*_whole(prompt, text(5)), CHUNK))
    assert fed == [2, 3, 2]


def test_memory_of_a_chunk_is_bounded() -> None:
    assert [chunk_of(vocab) for vocab in (32, 49_152, 151_936, 2**23)] == [512, 85, 27, 1]


def test_logits_that_are_not_finite_are_refused() -> None:
    model = models.build().double()
    model.lm_head.weight.data[3] = math.nan
    with pytest.raises(ValueError, match="W14"):
        TextScorer(models.lm(model), None, Sampling(1.0)).score(PROMPT, text(4), np.full(4, -1))
    target = models.lm(models.rnd())
    for law in (Sampling(0.0), Sampling(1.0)):
        with pytest.raises(ValueError, match="draft's logits not finite"):
            TextScorer(target, models.drafter(model, target), law).score(
                PROMPT, text(4), np.full(4, -1)
            )


def test_a_greedy_draft_that_is_not_finite_is_an_error_of_its_generation(tmp_path: Path) -> None:
    """The target's logits are finite, and every proposal is refused: only the draft shows it."""
    broken = models.noisy(models.rnd(), 0.1)
    broken.model.embed_tokens.weight.data[9] = math.nan
    models.save(models.rnd(), tmp_path / "t")
    models.save(broken, tmp_path / "d")
    # The self-test and the warm-up see the first prompt alone.
    prompts = lines(tmp_path / "p.txt", "w1 w2", "w9 w4")
    out = tmp_path / "r"
    more = ["--dtype", "float64", "-g", "1", "--max-new-tokens", "3", "--temperature", "0"]
    measure(out, tmp_path / "t", [tmp_path / "d"], prompts, *more)
    rows = pd.read_csv(out / "generations.csv")
    bad = rows[(rows["gamma"] == 1) & (rows["prompt_id"] == 2)]
    assert bad["status"].tolist() == ["error"]
    assert "the draft's logits not finite (W14)" in bad["reason"].iloc[0]


def test_scores_of_a_run_are_those_of_its_counts(tmp_path: Path) -> None:
    """Greedy: a tested draft is kept if and only if it is the text's own token."""
    models.save(models.rnd(), tmp_path / "t")
    models.save(models.noisy(models.rnd(), 0.1), tmp_path / "d")
    prompts = lines(tmp_path / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w3 w7 w8")
    out = tmp_path / "r"
    more = ["--dtype", "float64", "-g", "1-3", "--max-new-tokens", "14", "--temperature", "0,1"]
    measure(out, tmp_path / "t", [tmp_path / "d"], prompts, *more)
    summary = pd.read_csv(out / "summary.csv")
    for row in summary[(summary["category"] == "all") & (summary["gamma"] > 0)].itertuples():
        scores = pd.read_parquet(out / "scores" / f"{row.cell}.parquet")
        assert scores["tested"].sum() == row.num_tested
        assert scores["delivered"].sum() == row.num_output_tokens
        assert scores["keep"].notna().sum() == row.num_tested
        if row.temperature == 0:
            assert scores["keep"].sum() == row.num_accepted
            assert row.alpha_overlap == pytest.approx(row.alpha)
