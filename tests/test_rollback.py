"""After every cycle each cache holds the rows of its text, and nothing else is ever read.

`scripts/test_lowest.sh` runs this file under the lowest transformers too: the meaning of
`Cache.crop` changed between versions, so nothing here may rest on it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from models import GREEDY, itself, lm, noisy, outputs, plain, rnd, run, streams
from torch import Tensor

from specbench.drafts.hf import HfDraft
from specbench.engines.loop import Job, _Batch, decode
from specbench.engines.rows import Limits
from specbench.models.kvcache import SlabCache
from specbench.models.lm import CausalLM, Session
from specbench.models.state import TextState
from specbench.records import Sampling

PROMPTS = [[1, 5, 9], [(7 * i + 3) % 31 for i in range(12)], [4]]
LENGTH, GAMMA = 20, 3
FAMILIES = ("llama", "mistral", "gpt2", "gemma3")


class Audited(HfDraft):
    """At the end of each cycle looks through both caches, and spoils what the text does not own."""

    batch: _Batch
    cycles = 0

    def commit(self, kept: list[int], state: TextState) -> None:
        """`state` holds the committed text; its last token has not been fed to either model."""
        super().commit(kept, state)
        lengths = list(state.lengths)
        known = [n - 1 for n in lengths]
        assert all(k in (n, n - 1) for k, n in zip(self._known, known, strict=True))
        for session, held in ((self.batch.session, known), (self._session, self._known)):
            for row, count in enumerate(held):
                text = state.tokens[row : row + 1]
                off = distance(session, row, fresh(session.lm, text, count))
                assert off < 1e-9, (row, count, off)
            spoil(session.cache, held)
        self.cycles += 1


def fresh(model: CausalLM, text: Tensor, count: int) -> list[tuple[Tensor, Tensor]]:
    """Keys and values (count, heads, dim) of each layer, from one pass over `count` tokens."""
    session = model.session(1, count + 1)
    session.prefill(text, count)
    return [(slab.keys[0, :count], slab.values[0, :count]) for slab in session.cache.slabs]


def distance(session: Session, row: int, wanted: list[tuple[Tensor, Tensor]]) -> float:
    """Largest difference of a row's first entries from the wanted ones."""
    off = [
        (found[row, : len(want)] - want).abs().max()
        for slab, pair in zip(session.cache.slabs, wanted, strict=True)
        for found, want in zip((slab.keys, slab.values), pair, strict=True)
    ]
    return float(torch.stack(off).max())


def spoil(cache: SlabCache, held: Sequence[int]) -> None:
    """Overwrite all that lies behind the rows of the text, rejected drafts among them."""
    for slab in cache.slabs:
        for row, count in enumerate(held):
            slab.keys[row, count:] = 1e6
            slab.values[row, count:] = -1e6


def audited(family: str, sampling: Sampling, prompts: list[list[int]]) -> list[list[int]]:
    target = lm(rnd(family))
    draft = Audited(lm(noisy(rnd(family)), "draft"), target.vocab_size)
    limits = Limits(LENGTH, 64, frozenset(), draft.vocab_size)
    names = [str(i) for i in range(len(prompts))]
    job = Job(prompts, GAMMA, sampling, limits, streams(names, LENGTH, GAMMA))
    with torch.inference_mode():
        draft.batch = _Batch(job, target, draft)
        results = draft.batch.run()
    cycles = [c for r in results for c in r.cycles]
    assert draft.cycles == max(len(r.cycles) for r in results)
    assert any(c.full_accept for c in cycles)
    assert any(not c.full_accept for c in cycles)
    return outputs(results)


@pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS], ids=["one", "ragged"])
@pytest.mark.parametrize("family", FAMILIES)
def test_after_a_cycle_the_caches_hold_the_text_alone(
    family: str, prompts: list[list[int]]
) -> None:
    """D03, traps 5 to 7: committed − 1 rows, the draft's one less after a full accept.

    They are the rows of a fresh pass over the text; all others are spoilt after every cycle, and
    the text is still that of plain decoding without a cache.
    """
    wanted = [plain(rnd(family), prompt, LENGTH) for prompt in prompts]
    assert audited(family, GREEDY, prompts) == wanted


def test_the_same_for_sampled_text() -> None:
    """D03: spoilt or not, the tokens are the same."""
    target = lm(rnd())
    draft = HfDraft(lm(noisy(rnd()), "draft"), target.vocab_size)
    names = [str(i) for i in range(len(PROMPTS))]
    limits = Limits(LENGTH, 64, frozenset(), draft.vocab_size)
    job = Job(PROMPTS, GAMMA, Sampling(), limits, streams(names, LENGTH, GAMMA))
    assert audited("llama", Sampling(), PROMPTS) == outputs(decode(job, target, draft))


def test_the_audit_finds_a_kept_rejection(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would see a draft cache that counts rejected tokens as known: here nothing is undone."""
    right = HfDraft.commit
    monkeypatch.setattr(HfDraft, "commit", lambda self, kept, state: None)
    with pytest.raises(AssertionError):
        audited("llama", GREEDY, PROMPTS[:1])
    monkeypatch.setattr(HfDraft, "commit", right)
    assert audited("llama", GREEDY, PROMPTS[:1]) == [plain(rnd(), PROMPTS[0], LENGTH)]


def test_crop_is_never_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """D03: its argument is a length in some versions and a count to remove in others."""
    target = lm(copy.deepcopy(rnd()))

    def crop(*_: Any) -> None:
        raise AssertionError("crop was called")

    monkeypatch.setattr("specbench.models.kvcache.SlabLayer.crop", crop)
    monkeypatch.setattr(SlabCache, "crop", crop)
    assert outputs(run(target, itself(target), [[1, 5, 9]], 3, max_new=8)) == [
        plain(rnd(), [1, 5, 9], 8)
    ]
