"""`--engine transformers`: text, counts and law of stock `generate`, against independent ones.

Expected cycles come from `by_hand`: the greedy texts of both models by whole recomputation, cut
into cycles by the definition. Nothing in it knows of caches, of `generate`, or of our own loop.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import models
import pytest
from cli_runs import lines, refused, specbench, summary
from scipy import stats as scipy_stats

from specbench.engine_table import ENGINES
from specbench.engines.base import DraftRef, Settings
from specbench.engines.torch_engine import TorchEngine
from specbench.engines.transformers_engine import TransformersEngine
from specbench.errors import PairRefused
from specbench.records import Cell, Generation, Prompt, Sampling

Ids = Sequence[int]
TEXTS: list[list[int]] = [
    [1, 5, 9],
    [4, 2],
    [3, 3, 3, 7, 8],
    [11, 12],
    [(7 * i + 3) % 31 for i in range(30)],
]
GREEDY = Sampling(0.0)
PENALTIES = {"repetition_penalty": 3.0, "no_repeat_ngram_size": 1, "min_new_tokens": 3}


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair whose checkpoints ask for penalties, which nobody wants."""
    at = tmp_path_factory.mktemp("pair")
    models.save(models.rnd(), at / "t", generation=PENALTIES)
    models.save(models.noisy(models.rnd(), 0.04), at / "d", generation=PENALTIES)
    return at


def prompts(texts: Sequence[Ids] = TEXTS) -> list[Prompt]:
    return [Prompt(str(n), "", "", tuple(ids)) for n, ids in enumerate(texts)]


def opened(at: Path, draft: DraftRef, kind: type[Any] = TransformersEngine, **more: Any) -> Any:
    settings = {"dtype": "float64", "device": "cpu", "max_new_tokens": 24, **more}
    engine = kind(Settings(str(at / "t"), "t", **settings))
    engine.open_target()
    engine.open_draft(draft)
    return engine


def hf(at: Path) -> DraftRef:
    return DraftRef("d", "hf", str(at / "d"))


def written(engine: Any, gamma: int, law: Sampling = GREEDY, repeat: int = 0) -> list[Generation]:
    found: list[Generation] = engine.generate(Cell("d", gamma, law), prompts(), repeat)
    assert [one.reason for one in found] == [""] * len(found)
    return found


def by_hand(
    propose: Callable[[list[int], int], Ids],
    prompt: Ids,
    gamma: int,
    budget: int,
    eos: Ids = (),
    context: int = 128,
) -> list[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    """(drafted, kept, emitted) of each cycle, by the definition."""
    text, out = list(prompt), []
    target = models.plain(models.rnd(), prompt, budget + gamma + 1)
    ahead = [*prompt, *target]
    while len(text) < min(len(prompt) + budget, context) and not (
        text[-1:] and text[-1] in eos and out
    ):
        draft = list(propose(text, min(gamma, context - len(text) - 1)))
        own = ahead[len(text) : len(text) + len(draft) + 1]
        kept = next(
            (i for i, (a, b) in enumerate(zip(draft, own, strict=False)) if a != b), len(draft)
        )
        emitted = own[: kept + 1]
        cut = next((i for i, token in enumerate(emitted) if token in eos), None)
        if cut is not None:
            emitted = emitted[: cut + 1]
            kept = min(kept, cut + 1)
        out.append((tuple(draft), kept, tuple(emitted)))
        text += emitted
    return out


def drafting(eos: Ids = ()) -> Callable[[list[int], int], Ids]:
    """Greedy proposals of the draft, which ends at an EOS."""

    def propose(text: list[int], gamma: int) -> Ids:
        found = models.plain(models.noisy(models.rnd(), 0.04), text, gamma)
        cut = next((i for i, token in enumerate(found) if token in eos), None)
        return found if cut is None else found[: cut + 1]

    return propose


def looking_up(text: list[int], gamma: int) -> Ids:
    """What followed the first match of the longest run of up to three last tokens."""
    for size in (3, 2, 1):
        for start in range(len(text) - size):
            if size < len(text) and text[start : start + size] == text[-size:]:
                return text[start + size : start + size + gamma]
    return ()


def seen(one: Generation) -> list[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    return [(c.drafted_ids, c.num_accepted, c.emitted_ids) for c in one.cycles]


def test_plain_decoding_is_the_targets_greedy_text(at: Path) -> None:
    for one, text in zip(written(opened(at, hf(at)), 0), TEXTS, strict=True):
        assert list(one.token_ids) == models.plain(models.rnd(), text, 24)
        assert len(one.cycles) == 24
        assert all(c.gamma == 0 and len(c.emitted_ids) == 1 for c in one.cycles)


@pytest.mark.parametrize("gamma", [1, 2, 4, 7])
def test_greedy_cycles_are_those_of_the_definition(at: Path, gamma: int) -> None:
    some = 0
    for one, text in zip(written(opened(at, hf(at)), gamma), TEXTS, strict=True):
        assert list(one.token_ids) == models.plain(models.rnd(), text, 24)
        assert seen(one) == by_hand(drafting(), text, gamma, 24)
        assert sum(c.num_delivered for c in one.cycles) == 24
        some += sum(0 < c.num_accepted < gamma for c in one.cycles)
    assert gamma == 1 or some > 3


@pytest.mark.parametrize("gamma", [1, 3, 5])
def test_greedy_counts_and_text_are_those_of_our_own_loop(at: Path, gamma: int) -> None:
    for dtype in ("float32", "float64"):
        ours = written(opened(at, hf(at), TorchEngine, dtype=dtype), gamma)
        theirs = written(opened(at, hf(at), dtype=dtype), gamma)
        for a, b in zip(ours, theirs, strict=True):
            assert (a.token_ids, a.finish_reason) == (b.token_ids, b.finish_reason)
            assert seen(a) == seen(b)
            assert [c.num_delivered for c in a.cycles] == [c.num_delivered for c in b.cycles]


def test_a_target_as_its_own_assistant_keeps_all(at: Path) -> None:
    for one in written(opened(at, DraftRef("self", "self", "")), 3):
        assert [c.num_accepted for c in one.cycles] == [3] * 6
        assert all(c.full_accept for c in one.cycles)


@pytest.mark.parametrize("gamma", [2, 6])
def test_prompt_lookup_counts_empty_and_short_drafts_as_they_were(at: Path, gamma: int) -> None:
    engine = opened(at, DraftRef("ngram", "ngram", ""), max_new_tokens=60)
    sizes: Counter[int] = Counter()
    for one, text in zip(written(engine, gamma), TEXTS, strict=True):
        assert seen(one) == by_hand(looking_up, text, gamma, 60)
        sizes.update(c.gamma for c in one.cycles)
    assert sizes[0] > 5
    assert sizes[gamma] > 5
    assert engine.examine(prompts(), gamma)["verify_rule"] == "match"


def eos_of(at: Path, place: int) -> int:
    """A token that the greedy text of the first prompt has for the first time at this place."""
    text = models.plain(models.rnd(), TEXTS[0], 24)
    assert text.index(text[place]) == place
    return text[place]


@pytest.mark.parametrize("gamma", [0, 3, 6])
def test_texts_end_at_an_eos_and_their_last_cycle_there(tmp_path: Path, gamma: int) -> None:
    eos = (eos_of(tmp_path, 3), 28)
    generation = {"eos_token_id": list(eos)}
    models.save(models.rnd(), tmp_path / "t", generation=generation)
    models.save(models.noisy(models.rnd(), 0.04), tmp_path / "d")
    theirs = written(opened(tmp_path, hf(tmp_path)), gamma)
    ours = written(opened(tmp_path, hf(tmp_path), TorchEngine), gamma)
    for a, b, text in zip(ours, theirs, TEXTS, strict=True):
        assert (a.token_ids, a.finish_reason) == (b.token_ids, b.finish_reason)
        for one, other in zip(a.cycles, b.cycles, strict=True):
            # A draft ends at an EOS there, and at γ here; what was tested and kept is the same.
            assert other.drafted_ids == one.drafted_ids[: len(other.drafted_ids)]
            assert (one.num_tested, one.num_accepted) == (other.num_tested, other.num_accepted)
            assert (one.emitted_ids, one.censor) == (other.emitted_ids, other.censor)
        if gamma:
            assert seen(b) == by_hand(drafting(eos), text, gamma, 24, eos)
    assert {one.finish_reason for one in theirs} == {"eos", "length"}
    free = written(opened(tmp_path, hf(tmp_path), ignore_eos=True), gamma)
    assert [len(one.token_ids) for one in free] == [24] * len(TEXTS)


def test_an_eos_that_a_self_draft_proposes_is_censored_before_gamma(tmp_path: Path) -> None:
    models.save(models.rnd(), tmp_path / "t", generation={"eos_token_id": eos_of(tmp_path, 3)})
    engine = opened(tmp_path, DraftRef("self", "self", ""))
    for gamma, censor in ((3, ""), (4, ""), (6, "eos")):
        one = written(engine, gamma)[0]
        last = one.cycles[-1]
        assert last.num_tested == last.num_accepted + (last.gamma > last.num_accepted)
        if gamma == 6:
            assert (last.gamma, last.num_accepted, last.censor) == (4, 4, censor)
        assert one.finish_reason == "eos"


@pytest.mark.parametrize("budget", [1, 2, 5, 9])
def test_the_last_cycle_drafts_gamma_and_the_budget_clips_the_text_alone(
    at: Path, budget: int
) -> None:
    for one, text in zip(written(opened(at, hf(at), max_new_tokens=budget), 4), TEXTS, strict=True):
        assert list(one.token_ids) == models.plain(models.rnd(), text, budget)
        assert [c.gamma for c in one.cycles] == [4] * len(one.cycles)
        assert seen(one) == by_hand(drafting(), text, 4, budget)
        assert one.finish_reason == "length"


@pytest.mark.parametrize("kind", ["hf", "ngram"])
def test_prompt_and_output_stay_in_the_context(tmp_path: Path, kind: str) -> None:
    sizes = {"max_position_embeddings": 20}
    target = models.build(**sizes).double()
    models.save(target, tmp_path / "t")
    models.save(models.noisy(target, 0.04), tmp_path / "d")
    draft = hf(tmp_path) if kind == "hf" else DraftRef("ngram", "ngram", "")
    theirs = opened(tmp_path, draft).generate(Cell("d", 4, GREEDY), prompts(), 0)
    ours = opened(tmp_path, draft, TorchEngine).generate(Cell("d", 4, GREEDY), prompts(), 0)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.token_ids, a.finish_reason, a.reason) == (b.token_ids, b.finish_reason, b.reason)
        if kind == "hf":
            assert seen(a) == seen(b)
            assert [c.censor for c in a.cycles] == [c.censor for c in b.cycles]
    assert theirs[-1].status == "error"
    assert "leaves no room in a context of 20" in theirs[-1].reason


def test_times_cover_all_but_the_first_cycle_and_a_seed_repeats_a_text(at: Path) -> None:
    engine = opened(at, hf(at))
    law = Sampling(1.0)
    for gamma in (0, 3):
        first, again, other = (written(engine, gamma, law, repeat) for repeat in (0, 0, 1))
        assert [one.token_ids for one in first] == [one.token_ids for one in again]
        assert [one.token_ids for one in first] != [one.token_ids for one in other]
        for one in first:
            assert one.cycles[0].untimed
            assert all(c.draft_s >= 0 and c.verify_s > 0 and c.other_s > 0 for c in one.timed)
            assert len(one.timed) == len(one.cycles) - 1
            assert (math.fsum(c.draft_s for c in one.timed) > 0) == (gamma > 0)
            assert one.prefill_s > 0


P, Q = (0.5, 0.3, 0.15, 0.05), (0.2, 0.5, 0.1, 0.2)
KEPT = sum(map(min, P, Q))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair of known laws, whatever the text."""
    at = tmp_path_factory.mktemp("known")
    models.save(models.iid(P), at / "t")
    models.save(models.iid(Q), at / "d")
    return at


@pytest.mark.parametrize("kind", ["hf", "ngram"])
def test_sampled_text_has_the_targets_law(known: Path, kind: str) -> None:
    """1,500 tokens, seed 0, χ² at 1 %; α within 4 standard errors of Σ min(p, q)."""
    draft = hf(known) if kind == "hf" else DraftRef("ngram", "ngram", "")
    engine = opened(known, draft, max_new_tokens=300)
    found = engine.generate(Cell("d", 3, Sampling(1.0)), prompts([[n % 4, 1] for n in range(5)]), 0)
    counts = Counter(token for one in found for token in one.token_ids)
    assert sum(counts.values()) == 1500
    test = scipy_stats.chisquare([counts[i] for i in range(4)], [1500 * p for p in P])
    assert test.pvalue > 0.01
    cycles = [c for one in found for c in one.cycles]
    tested = sum(c.num_tested for c in cycles)
    if kind == "hf":
        alpha = sum(c.num_accepted for c in cycles) / tested
        assert abs(alpha - KEPT) < 4 * math.sqrt(KEPT * (1 - KEPT) / tested)
        return
    # A looked-up token x is kept with probability p(x): as under a one-hot draft.
    drafted = [x for c in cycles for x in c.drafted_ids[: c.num_tested]]
    wanted = [P[x] for x in drafted]
    spread = math.sqrt(sum(p * (1 - p) for p in wanted))
    assert abs(sum(c.num_accepted for c in cycles) - sum(wanted)) < 4 * spread


def squared(law: Sequence[float], power: float, keep: int) -> list[float]:
    """The most likely `keep` of a law, to a power and scaled anew."""
    least = sorted(law)[-keep]
    raised = [x**power if x >= least else 0.0 for x in law]
    return [x / sum(raised) for x in raised]


def test_temperature_holds_for_the_text_and_goes_twice_into_the_draft(known: Path) -> None:
    """T = ½ and top-k 3: the text has p² cut to three; the assistant drafts with q⁴ and not q².

    `generate` gives its assistant the target's warpers and makes them once more there. The table
    of engines says so, since α is then not that of a draft at T.
    """
    engine = opened(known, hf(known), max_new_tokens=300)
    law = Sampling(0.5, top_k=3)
    found = engine.generate(Cell("d", 2, law), prompts([[n % 4, 1] for n in range(5)]), 0)
    p, once, twice = squared(P, 2, 3), squared(Q, 2, 3), squared(Q, 4, 3)
    counts = Counter(token for one in found for token in one.token_ids)
    assert counts[3] == 0
    seen = [counts[i] for i in range(3)]
    assert scipy_stats.chisquare(seen, [1500 * x for x in p[:3]]).pvalue > 0.01
    cycles = [c for one in found for c in one.cycles]
    tested = sum(c.num_tested for c in cycles)
    alpha = sum(c.num_accepted for c in cycles) / tested
    kept, other = (sum(map(min, p, q)) for q in (twice, once))
    spread = math.sqrt(kept * (1 - kept) / tested)
    assert abs(alpha - kept) < 4 * spread < abs(alpha - other)
    row = ENGINES["transformers"]
    assert "twice" in row.drafts_otherwise("hf", law)
    assert [row.drafts_otherwise("hf", s) for s in (GREEDY, Sampling(1.0, top_k=3))] == ["", ""]


def test_tables_of_two_sizes_and_a_least_match_are_refused(at: Path, tmp_path: Path) -> None:
    models.save(models.rnd(), tmp_path / "t")
    words = [f"w{i}" for i in range(32)]
    models.save(models.build(vocab=40).double(), tmp_path / "d", words=words)
    with pytest.raises(PairRefused, match="tables of 40 and 32 tokens"):
        opened(tmp_path, hf(tmp_path))
    with pytest.raises(PairRefused, match="goes down to single tokens"):
        opened(at, DraftRef("ngram", "ngram", "", (("min", 2),)))


def test_a_run_fills_the_columns_and_scores_what_our_own_law_fits(at: Path, tmp_path: Path) -> None:
    lines(tmp_path / "p.txt", "w1 w5 w9", "w4 w2", "w3 w3 w3 w7 w8")
    how = ["-g", "2", "--max-new-tokens", "12", "--temperature", "0,1", "--threads", "1"]
    pair = ["-t", at / "t", "-d", at / "d", "-d", "ngram", "--dtype", "float64"]
    words = ["run", *pair, "--dataset", tmp_path / "p.txt", *how, "-o", tmp_path / "o"]
    ran = specbench(*words, "--engine", "transformers")
    assert ran.code == 0, ran.err
    assert "engine   transformers: stock generate" in ran.err
    assert "rollback equals" not in ran.err
    assert "note: ngram: not scored: its prompt lookup takes the first match" in ran.err
    rows = [
        row for row in summary(tmp_path / "o") if row["gamma"] == "2" and row["category"] == "all"
    ]
    assert [row["verify_rule"] for row in rows] == ["exact", "exact", "match", "match"]
    assert {(row["engine"], row["forward"]) for row in rows} == {("transformers", "")}
    assert [bool(row["alpha_overlap"]) for row in rows] == [True, True, False, False]
    for row in rows:
        for name in ("t_draft_ms", "t_verify_ms", "t_other_ms", "latency_ms", "speedup", "ttft_ms"):
            assert float(row[name]) > 0, name
    said = json.loads((tmp_path / "o/run.json").read_text())["engine"]
    assert said["num_assistant_tokens_schedule"] == "constant"
    assert said["attention"] == "sdpa"


@pytest.mark.parametrize("flag", [["--batch-size", "2"], ["-d", "suffix"], ["--forward", "packed"]])
def test_what_stock_generate_cannot_do_is_refused_before_a_model_is_read(
    flag: list[str], tmp_path: Path
) -> None:
    lines(tmp_path / "config.json", "{")
    said = refused("run", "-t", tmp_path, "-d", "self", "--engine", "transformers", *flag)
    assert said[0].startswith("error: --engine transformers: "), said
