"""What counts of a server mean: steps told by hand against steps made up from its numbers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from specbench.records import Counts, Prompt, Sampling
from specbench.serving.ask import ask
from specbench.serving.counts import Asked, from_counted, from_steps, plain
from specbench.serving.dialects import Ask
from specbench.serving.faults import ServerFault
from specbench.serving.metrics import counters, samples
from specbench.serving.service import Service, open_service
from specbench.serving.steps import Contradiction, Counted, Seen, Step, traced
from specbench.serving.transport import address_of
from tests.served import Served, serving

PROMPT = Prompt("1", "", "x", (1, 2, 3))
PLAN = ((3, 2), (3, 0), (3, 3))
"""Of 9 tokens: steps that keep 2, 0 and 3 of 3 drafts and emit 3 + 1 + 4."""
BY_HAND = {
    "num_cycles": 3,
    "num_drafted": 9,
    "num_tested": 3 + 1 + 3,
    "num_accepted": 5,
    "num_full_accept": 1,
    "num_censored": 0,
    "num_undrafted": 0,
    "positions": ((3, 2), (2, 2), (2, 1)),
    "timed_tokens": 8,
}


def shown(counts: Counts, *names: str) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in names or BY_HAND}


def opened(served: Served) -> Service:
    return open_service(address_of(served.url, "x", retries=0), ["toy"], PROMPT, "x")


def reply(service: Service, tokens: int = 9) -> Any:
    return ask(service.address, service.api, Ask("toy", PROMPT, Sampling(0.0), tokens, seed=0))


def test_vllm_counters_around_a_request_are_its_steps() -> None:
    with serving(plan=PLAN, late_s=0.1) as served:
        service = opened(served)
        service.grown(service.quiet(), reply(service).num_tokens, 1)  # what was before is left out
        before = service.quiet()
        found = reply(service)
        grown = service.grown(before, found.num_tokens, 1)
    counted = grown.counted()
    assert counted is not None
    assert shown(from_counted(Asked(3, 1, 9), counted)) == BY_HAND


def test_vllm_block_of_a_request_is_its_steps() -> None:
    with serving(plan=PLAN, block="lengths") as served:
        found = reply(opened(served))
    assert shown(from_counted(Asked(3, 1, 9), found.counted)) == BY_HAND


def test_llamacpp_tokens_tell_every_step() -> None:
    with serving(tool="llamacpp", plan=PLAN) as served:
        found = reply(opened(served))
    steps = traced(found.seen, 9, 3, ended_by_eos=False, own_length=False)
    assert steps is not None
    assert shown(from_steps(Asked(3, 1, 9), steps)) == BY_HAND


def test_sglang_counts_steps_and_no_positions() -> None:
    with serving(tool="sglang", plan=PLAN) as served:
        found = reply(opened(served))
    counts = from_counted(Asked(3, 1, 9), found.counted)
    assert (counts.num_cycles, counts.num_drafted, counts.num_accepted) == (3, 9, 5)
    assert (counts.num_tested, counts.positions) == (None, ())


def test_steps_without_a_draft_are_cycles() -> None:
    """num_drafts leaves them out: a mean acceptance length of 3.15 where a step gives 1.35."""
    seen = Counted(drafted=120, accepted=86, drafts=40)
    counts = from_counted(Asked(3, 1, 333, own_length=True), seen)
    assert counts.num_cycles == 332 - 86 == 246
    assert counts.num_undrafted == 206
    assert counts.timed_tokens / counts.num_cycles == pytest.approx(1.35, abs=0.001)


def test_a_last_step_that_is_cut_does_not_hide_a_cycle() -> None:
    # Two steps keep 3 of 3 drafts; a limit cuts the second after one token of four.
    counted = Counted(drafted=6, accepted=6, drafts=2, positions=(2, 2, 2))
    counts = from_counted(Asked(3, 1, 6), counted)
    assert (counts.num_cycles, counts.num_undrafted) == (2, 0)
    assert counts.positions == ((2, 2), (2, 2), (2, 2))


def test_drafts_of_unknown_lengths_leave_tests_open() -> None:
    counted = Counted(drafted=5, accepted=3, drafts=2, positions=(2, 1, 0))
    counts = from_counted(Asked(3, 1, 6, own_length=True), counted)
    assert (counts.num_cycles, counts.num_accepted) == (2, 3)
    assert (counts.num_tested, counts.positions) == (None, ())


def test_one_draft_a_step_is_always_tested() -> None:
    counts = from_counted(Asked(1, 1, 8), Counted(drafted=4, accepted=3, drafts=4))
    assert (counts.num_tested, counts.positions) == (4, ((4, 3),))


def test_plain_decoding_is_a_cycle_per_token_behind_the_first() -> None:
    counts = plain(Asked(0, 2, 20))
    assert (counts.num_cycles, counts.timed_tokens, counts.num_drafted) == (18, 18, 0)


def test_a_baseline_that_drafts_is_refused() -> None:
    with pytest.raises(Contradiction, match="the baseline's server, of gamma 0, drafted"):
        plain(Asked(0, 1, 9), Counted(drafted=3, accepted=1, drafts=1))


@pytest.mark.parametrize(
    ("counted", "told"),
    [
        (Counted(drafted=3, accepted=4, drafts=1), "4 drafts kept of 3"),
        (Counted(drafted=8, accepted=2, drafts=2), "no server of gamma 3"),
        (Counted(drafted=60, accepted=50, drafts=20), "more than the 8 tokens"),
        (Counted(drafted=6, accepted=3, drafts=2, positions=(1, 2, 0)), "at a position"),
    ],
)
def test_impossible_counts_are_refused(counted: Counted, told: str) -> None:
    with pytest.raises(Contradiction, match=told):
        from_counted(Asked(3, 1, 9), counted)


def made_steps(rng: random.Random, gamma: int, tokens: int) -> list[tuple[int, int]]:
    out, left = [], tokens - 1
    while left:
        drafted = min(rng.choice((0, gamma, gamma)), left - 1)
        kept = rng.randint(0, drafted)
        out.append((drafted, kept))
        left -= kept + 1
    return out


@pytest.mark.parametrize("seed", range(40))
def test_steps_are_found_again_also_behind_hidden_tokens(seed: int) -> None:
    rng = random.Random(seed)
    gamma, tokens = rng.randint(1, 5), rng.randint(2, 60)
    steps = made_steps(rng, gamma, tokens)
    seen, at, drafted, accepted = [Seen(1, 0, 0)], 1, 0, 0
    for more, kept in steps:
        drafted, accepted = drafted + more, accepted + kept
        told = sorted(rng.sample(range(kept + 1), rng.randint(1, kept + 1)))
        seen += [Seen(at + 1 + one, drafted, accepted) for one in told]
        at += kept + 1
    seen.append(Seen(tokens, drafted, accepted))
    found = traced(seen, tokens, gamma, ended_by_eos=False, own_length=True)
    assert found is not None
    drafts = [(s.drafted, s.kept) for s in found if s.drafted]
    assert drafts == [step for step in steps if step[0]]
    assert len(found) == len(steps)


def test_a_hidden_step_is_not_made_up() -> None:
    # Two steps of 2 drafts between two events look like one of 4.
    seen = [Seen(1, 0, 0), Seen(4, 4, 1)]
    assert traced(seen, 4, 2, ended_by_eos=False, own_length=False) is None


def test_a_draft_cut_by_the_end_of_the_request_is_censored() -> None:
    seen = [Seen(1, 0, 0), Seen(2, 1, 1), Seen(3, 1, 1)]
    (step,) = traced(seen, 3, 4, ended_by_eos=False, own_length=False) or ()
    assert step == Step(1, 1, 2, "context")


def test_nothing_behind_an_accepted_eos_counts() -> None:
    # All 4 drafts are kept, the second of them is the EOS.
    seen = [Seen(1, 0, 0), Seen(2, 4, 4), Seen(3, 4, 4)]
    (step,) = traced(seen, 3, 4, ended_by_eos=True, own_length=False) or ()
    assert step == Step(4, 2, 2, "eos")
    assert (step.tested, step.kept) == (2, 2)


def test_an_eos_as_bonus_is_an_ordinary_end() -> None:
    seen = [Seen(1, 0, 0), Seen(2, 2, 2), Seen(3, 2, 2), Seen(4, 2, 2)]
    (step,) = traced(seen, 4, 2, ended_by_eos=True, own_length=False) or ()
    assert step == Step(2, 2, 3)


def test_counts_that_fall_inside_a_request_are_refused() -> None:
    with pytest.raises(Contradiction):
        traced([Seen(1, 0, 0), Seen(2, 3, 0), Seen(3, 2, 0)], 3, 3, ended_by_eos=False,
               own_length=False)  # fmt: skip


def test_another_client_is_seen_in_the_counters() -> None:
    with serving(plan=PLAN) as served:
        service = opened(served)
        before = service.quiet()
        served.other_tokens = 4
        found = reply(service)
        with pytest.raises(ServerFault, match="another client"):
            service.grown(before, found.num_tokens, 1)


def test_requests_under_way_are_waited_for_and_then_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr("specbench.serving.service.SETTLING_S", 0.1)
    with serving(running=2) as served:
        service = opened(served)
        with pytest.raises(ServerFault, match="busy with 2 requests"):
            service.quiet()


def test_counters_that_fall_are_a_restart() -> None:
    with serving(plan=PLAN) as served:
        service = opened(served)
        reply(service)
        reply(service)
        before = service.quiet()
        served.reset = True
        found = reply(service)
        with pytest.raises(ServerFault, match="restarted"):
            service.grown(before, found.num_tokens, 1)


def test_engines_and_reasons_of_a_server_are_summed() -> None:
    text = """
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop"} 3.0
vllm:request_success_total{engine="0",finished_reason="length"} 4.0
vllm:request_success_created{engine="0"} 1.7e+09
vllm:generation_tokens_total{engine="0",model_name="a \\"b\\" }"} 1.5e+03
vllm:generation_tokens_total{engine="1",model_name="a"} 500
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 5.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 1.0
vllm:num_requests_running{engine="0"} 1.0
"""
    found = counters(text)
    assert found.values == {"requests": 7, "tokens": 2000}
    assert (found.positions, found.busy) == ((6, 2), 1)


def test_samples_of_the_documented_format_are_read() -> None:
    """Lines as in the example of Prometheus' own page, the hard ones included."""
    text = r"""
# HELP http_requests_total The total number of HTTP requests.
http_requests_total{method="post",code="200"} 1027 1395066363000
msdos_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find:\n\"FILE.TXT\""} 1.458255915e9
metric_without_timestamp_and_labels 12.47
something_weird{problem="division by zero"} +Inf -3982045
http_request_duration_seconds_bucket{le="0.05",} 24054
"""
    found = list(samples(text))
    assert found[0] == ("http_requests_total", {"method": "post", "code": "200"}, 1027.0)
    assert found[1][1] == {"path": r"C:\DIR\FILE.TXT", "error": 'Cannot find:\n"FILE.TXT"'}
    assert found[2] == ("metric_without_timestamp_and_labels", {}, 12.47)
    assert found[3][2] == float("inf")
    assert found[4][1:] == ({"le": "0.05"}, 24054.0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "2.5"])
def test_counters_that_are_no_counts_are_refused(value: str) -> None:
    with pytest.raises(ServerFault, match="tokens"):
        counters(f"vllm:generation_tokens_total {value}\n")
