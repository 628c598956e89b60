"""Sessions of fixed shapes: what is captured once and replayed gives what a plain session gives.

The double of a CUDA graph records every operation of a step with the tensors it touched, and
replays them at the same addresses: what Python would have computed anew, it cannot. So whatever a
step takes from outside its two buffers shows as a wrong text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch._dynamo
from models import build, counts, drafter, outputs, plain, rnd, run
from models import lm as loaded
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specbench.drafts.hf import HfDraft
from specbench.errors import UsageError
from specbench.models.forwards import apply_mode
from specbench.models.lm import CausalLM
from specbench.models.static import Compiled, Eager, Pool, Runner, StaticSession, bucket
from specbench.records import Sampling

TEXTS = [[3, 1, 4, 1, 5], [9, 2, 6], [7, 7, 7, 7, 7, 7, 7]]
FAMILIES = ["llama", "mistral", "qwen3", "gemma2", "gemma3", "gpt2"]


class Recorder(TorchDispatchMode):
    """Every operation with its arguments and what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def replay(self) -> None:
        for func, args, kwargs, out in self.calls:
            given = [x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if _is(x)]
            new = func(*args, **kwargs)
            for old, fresh in zip(tree_leaves(out), tree_leaves(new), strict=True):
                if _is(old) and old.untyped_storage().data_ptr() not in given:
                    old.copy_(fresh)


def _is(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


@dataclass
class Graphs:
    """The double: captures once, replays what was recorded."""

    seconds: float = 0.0
    captures: int = 0
    replays: list[int] = field(default_factory=list)

    def forward(self, lm: CausalLM) -> Callable[..., Any]:
        return lm.forward

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        self.captures += 1
        run()
        with Recorder() as recorder:
            run()

        def replay() -> None:
            self.replays.append(1)
            recorder.replay()

        return replay


def static_pair(
    target: Any, draft: Any, runner: Runner, slots: int = 64
) -> tuple[CausalLM, HfDraft]:
    """Both models over sessions of fixed shapes."""
    ours = loaded(target)
    theirs = drafter(draft, ours)
    for lm in (ours, theirs.lm):
        lm.make_session = Pool(runner)
        lm.make_session.reserve(slots)
    return ours, theirs


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("make", [Eager, Graphs])
def test_ragged_greedy_text_is_the_plain_text(family: str, make: Callable[[], Runner]) -> None:
    """float64; rows end at different cycles, so that smaller steps take over."""
    target, draft = rnd(family, 1), rnd(family, 2)
    want = [plain(target, text, 20) for text in TEXTS]
    ours, theirs = static_pair(target, draft, make())
    assert outputs(run(ours, theirs, TEXTS, 3, max_new=20)) == want
    assert outputs(run(ours, None, TEXTS, 0, max_new=20)) == want


def test_counts_and_draws_are_those_of_plain_sessions() -> None:
    law = Sampling(temperature=1.0)
    target, draft = rnd(seed=1), rnd(seed=2)
    lm = loaded(target)
    want = run(lm, drafter(draft, lm), TEXTS, 4, sampling=law, max_new=20)
    got = run(*static_pair(target, draft, Graphs()), TEXTS, 4, sampling=law, max_new=20)
    assert outputs(got) == outputs(want)
    assert [counts(row) for row in got] == [counts(row) for row in want]


def test_the_target_drafts_for_itself_over_slots_of_its_own() -> None:
    lm = loaded(rnd(seed=3))
    lm.make_session = Pool(Graphs())
    rows = run(lm, HfDraft(lm, lm.vocab_size), TEXTS, 3, max_new=20)
    assert outputs(rows) == [plain(rnd(seed=3), text, 20) for text in TEXTS]
    assert all(c.num_accepted == c.gamma for row in rows for c in row.cycles)


def test_nothing_is_captured_once_every_shape_was_run() -> None:
    """Three rows: steps of 3, 2 and 1; widths 1 and 2 of the draft, 4 and 1 of the target."""
    runner = Graphs()
    ours, theirs = static_pair(rnd(seed=1), rnd(seed=2), runner)
    run(ours, theirs, TEXTS, 3, max_new=20)
    run(ours, theirs, TEXTS, 0, max_new=20)
    assert runner.captures == 3 * 4
    for texts in (TEXTS, TEXTS[1:], TEXTS[:1]):
        run(ours, theirs, texts, 3, max_new=20)
    assert runner.captures == 3 * 4


def test_a_longer_text_than_was_reserved_gets_new_slots() -> None:
    target = rnd(seed=1)
    ours, theirs = static_pair(target, rnd(seed=2), Graphs(), slots=1)
    for text in (TEXTS[0], [5] * 60, TEXTS[1]):
        assert outputs(run(ours, theirs, [text], 3, max_new=12)) == [plain(target, text, 12)]


def test_a_prompt_of_one_token_needs_no_prefill() -> None:
    target = rnd(seed=1)
    ours, theirs = static_pair(target, rnd(seed=2), Graphs())
    assert outputs(run(ours, theirs, [[4]], 2, max_new=12)) == [plain(target, [4], 12)]


def test_the_context_limit_holds_where_slots_are_more() -> None:
    """Slots are rounded up to 64 beyond a context of 40; positions never are."""
    target = build("llama", 1, max_position_embeddings=40).double()
    ours, theirs = static_pair(target, target, Graphs())
    found = run(ours, theirs, [[3, 1, 4]], 4, max_new=60)
    want = run(loaded(target), None, [[3, 1, 4]], 0, max_new=60)
    assert outputs(found) == outputs(want)
    assert len(outputs(found)[0]) == 37


def test_every_step_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve widths of one model: as many graphs, and none that runs uncompiled in silence.

    The shapes are those of `torch.compile`; what stands behind it makes no code, to save time.
    """
    compiling = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", compiling)
    counted = torch._dynamo.utils.counters["stats"]
    model, runner = rnd(), Compiled()
    with torch.inference_mode():
        session = Pool(runner)(loaded(model), 1, 64, "target")
        before = counted["unique_graphs"]
        session.prepare(range(1, 13))
        assert runner.steps == 12
        assert counted["unique_graphs"] - before == 12
        tokens = torch.tensor([[5] * 40])
        session.prefill(tokens, 20)
        wanted = loaded(model).session(1, 64)
        wanted.prefill(tokens, 20)
        for width in range(1, 13):
            got = session.feed(tokens, 20, width, 20 + width, keep=1)
            assert torch.allclose(got, wanted.feed(tokens, 20, width, 20 + width, keep=1))
        assert counted["unique_graphs"] - before == 12


class Doubling:
    """In place of a model: a forward that is compiled anew for every width."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return 2 * ids


def test_a_step_that_is_compiled_again_and_again_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the compiler gives up on a function it raises, and does not run it as it is."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    model: Any = Doubling()
    step = Compiled().forward(model)

    def feed_every() -> None:
        for width in range(1, 16):
            step(torch.ones(1, width))

    assert step(torch.ones(1, 1)).tolist() == [[2.0]]
    with pytest.raises(Exception, match="limit"):
        feed_every()


@pytest.mark.slow
@pytest.mark.long
def test_a_compiled_pair_writes_the_plain_text() -> None:
    target, draft = rnd(seed=1), rnd(seed=2)
    runner = Compiled()
    ours, theirs = static_pair(target, draft, runner)
    assert outputs(run(ours, theirs, TEXTS[:1], 2, max_new=12)) == [plain(target, TEXTS[0], 12)]
    assert runner.seconds > 0


@pytest.mark.parametrize(
    ("rows", "most", "held"), [(1, 8, 1), (2, 8, 2), (3, 8, 4), (5, 8, 8), (5, 6, 6), (6, 6, 6)]
)
def test_rows_are_held_by_the_next_power_of_two_or_all(rows: int, most: int, held: int) -> None:
    assert bucket(rows, most) == held


def test_graphs_are_refused_without_cuda() -> None:
    lm = loaded(build("llama"))
    with pytest.raises(UsageError, match="--forward graph: CUDA graphs need a CUDA device"):
        apply_mode(lm, "graph")
    assert not isinstance(lm.session(1, 8), StaticSession)
