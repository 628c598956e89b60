"""vLLM's counts of a request in order, with what came together: every step, also where it was cut.

Steps are made up, told as vLLM tells them (drafts behind an end are counted as kept, steps without
a draft are not counted at all), and have to be found again.
"""

from __future__ import annotations

import random

import pytest

from specbench.records import Prompt, Sampling
from specbench.serving.ask import ask
from specbench.serving.counts import Asked, from_steps
from specbench.serving.dialects import Ask, read
from specbench.serving.service import open_service
from specbench.serving.steps import Contradiction, Counted, aligned
from specbench.serving.transport import address_of
from tests.served import serving

PROMPT = Prompt("1", "", "x", (1, 2, 3))


def found(drafts: tuple[tuple[int, int], ...], sizes: tuple[int, ...], *, eos: bool = False):  # type: ignore[no-untyped-def]
    told = Counted(in_order=drafts)
    return aligned(told, sizes, 3, ended_by_eos=eos, own_length=True)


def test_steps_without_a_draft_are_what_is_left_over() -> None:
    # As vLLM 0.32.0 drafted from its own n-grams: 9 of 18 steps had a draft, of which 22 were kept.
    kept = (1, 0, 3, 3, 3, 3, 3, 3, 3)
    sizes = (1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4, 3)
    steps = found(tuple((3, k) for k in kept), sizes)
    counts = from_steps(Asked(3, 1, 40, own_length=True), steps)
    assert (counts.num_cycles, counts.num_undrafted, counts.num_accepted) == (18, 9, 22)
    # tokens − 1 − accepted is short by the token that a limit cut off; vLLM's own mean is 3.44.
    assert counts.num_cycles == 40 - 1 - 22 + 1
    assert counts.timed_tokens / counts.num_cycles == pytest.approx(39 / 18)


@pytest.mark.parametrize(
    ("drafts", "sizes", "kept", "tested", "censored"),
    [
        # vLLM kept 2 behind an EOS at the first draft: one draft was decided for this text.
        (((3, 3),), (1, 1), 1, 1, 1),
        # An EOS as the token behind two kept drafts: nothing is behind it.
        (((3, 2),), (1, 3), 2, 3, 0),
        # An EOS as the last of three drafts: all were tested, the token behind them is not there.
        (((3, 3),), (1, 3), 3, 3, 0),
        # As seen: "She had been" of the embedded pair, where a comma ends.
        (((3, 3), (3, 3), (3, 0), (3, 0), (3, 3)), (1, 4, 4, 1, 1, 2), 8, 3 + 3 + 1 + 1 + 2, 1),
    ],
)
def test_drafts_behind_an_eos_are_not_kept(
    drafts: tuple[tuple[int, int], ...],
    sizes: tuple[int, ...],
    kept: int,
    tested: int,
    censored: int,
) -> None:
    counts = from_steps(Asked(3, 1, sum(sizes)), found(drafts, sizes, eos=True))
    assert counts.num_cycles == len(drafts)
    assert counts.num_accepted == kept
    assert counts.num_tested == tested
    assert counts.num_censored == censored


def test_made_up_steps_are_found_again() -> None:
    rng = random.Random(3)
    for _ in range(400):
        runs = [
            (drafted, rng.randint(0, drafted))
            for drafted in (rng.choice((0, 1, 3, 3)) for _ in range(rng.randint(1, 9)))
        ]
        over = rng.randint(0, runs[-1][1])
        emitted = [kept + 1 for _, kept in runs]
        emitted[-1] -= over
        steps = found(tuple(run for run in runs if run[0]), (1, *emitted))
        counts = from_steps(Asked(3, 1, 1 + sum(emitted), own_length=True), steps)
        assert counts.num_cycles == len(runs)
        assert counts.num_undrafted == sum(not drafted for drafted, _ in runs)
        assert counts.num_accepted == sum(kept for _, kept in runs)
        assert counts.num_tested == sum(min(kept + 1, drafted) for drafted, kept in runs)


def test_events_that_came_together_leave_it_open() -> None:
    # A slow reader gets two steps at once: 2 + 4 tokens are in no step of γ = 3.
    assert found(((3, 1), (3, 3)), (1, 6)) is None
    assert found(((3, 1),), (2, 2)) is None
    assert found(((3, 1),), ()) is None


def test_steps_that_no_server_of_this_gamma_takes_are_refused() -> None:
    with pytest.raises(Contradiction, match="more drafts kept"):
        found(((2, 3),), (1, 4))
    with pytest.raises(Contradiction, match="more drafts than gamma 3"):
        found(((5, 2),), (1, 3))


@pytest.mark.parametrize("block", ["summary", "detailed", "lengths"])
def test_every_form_of_the_block_tells_the_same_positions(block: str) -> None:
    with serving(plan=((3, 2), (3, 0), (3, 3)), block=block) as served:
        service = open_service(address_of(served.url, "x", retries=0), ["toy"], PROMPT, "x")
        reply = ask(service.address, service.api, Ask("toy", PROMPT, Sampling(0.0), 9, seed=0))
    assert reply.counted is not None
    assert reply.counted.steps == {(3, 2): 1, (3, 0): 1, (3, 3): 1}
    assert reply.sizes == (1, 3, 1, 4)
    order = ((3, 2), (3, 0), (3, 3)) if block == "detailed" else None
    assert reply.counted.in_order == order


def test_a_request_without_a_step_has_an_empty_order() -> None:
    """As 0.32.0 says it of one whose first token is an EOS: `detailed` without its lists."""
    block = {
        "acceptance_histogram": [0, 0, 0, 0], "num_spec_steps": 0, "num_draft_tokens": 0,
        "num_accepted_draft_tokens": 0, "num_spec_tokens": 3,
    }  # fmt: skip
    payload = {"choices": [], "metrics": {"speculative_decoding": block}}
    counted = read("completions", payload).counted
    assert counted is not None
    assert counted.in_order == ()
    assert aligned(counted, (1,), 3, ended_by_eos=True, own_length=False) == ()
