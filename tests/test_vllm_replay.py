"""The client against what vLLM 0.32.0 said: its texts, its counts, and what they leave out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from specbench.engines.served import ServedEngine
from specbench.records import Counts, Prompt, Sampling
from specbench.serving.ask import ask
from specbench.serving.counts import Asked, from_counted, from_steps
from specbench.serving.dialects import Ask
from specbench.serving.metrics import Counters
from specbench.serving.replies import Reply
from specbench.serving.service import open_service
from specbench.serving.steps import aligned
from specbench.serving.transport import address_of
from tests.replayed import recorded, replayed, server

PROBE = Prompt("probe", "", "The", (1,))


@dataclass(frozen=True)
class Heard:
    """One request: what the client made of it, and what the events said by themselves."""

    prompt: str
    reply: Reply
    grown: Counters
    sizes: list[int]
    """Tokens of each event, read by hand."""
    block: dict[str, Any]
    counts: Counts


def heard(name: str) -> Iterator[Heard]:
    said = server(name)
    with replayed(said) as url:
        service = open_service(address_of(url, "x", retries=0), ["recorded"], PROBE, "x")
        assert (service.tool, service.api, service.context) == ("vllm", "completions", 512)
        for request in said["requests"]:
            prompt = Prompt("1", "", request["prompt"], tuple(request["body"]["prompt"]))
            before = service.counters()
            one = Ask(service.model, prompt, Sampling(0.0), request["body"]["max_tokens"], 0)
            reply = ask(service.address, service.api, one)
            grown = service.grown(before, reply.num_tokens, 1)
            events = [json.loads(event) for event in request["events"] if event != "[DONE]"]
            sizes = [len(c["token_ids"]) for e in events for c in e["choices"]]
            block = (events[-1].get("metrics") or {}).get("speculative_decoding", {})
            counts = ServedEngine._own(_engine(name), said["gamma"], reply)
            assert counts is not None or not said["gamma"]
            yield Heard(request["prompt"], reply, grown, sizes, block, counts or Counts())


def _engine(name: str) -> Any:
    return type("Own", (), {"own_length": name == "ngram"})()


def test_the_recording_is_of_float32_and_small() -> None:
    found = recorded()
    assert found["version"].startswith("0.32")
    assert {one["name"] for one in found["servers"]} == {"plain", "draft", "ngram", "eos"}
    assert len(json.dumps(found)) < 300_000


@pytest.mark.parametrize("name", ["draft", "ngram", "eos"])
def test_requests_and_metrics_count_the_same(name: str) -> None:
    for one in heard(name):
        told, counted = one.reply.counted, one.grown.counted()
        assert told is not None
        assert counted is not None
        assert (told.drafted, told.accepted, told.drafts) == (
            counted.drafted, counted.accepted, counted.drafts,
        )  # fmt: skip
        in_order = told.in_order or ()
        kept = [sum(k >= at for _, k in in_order) for at in (1, 2, 3)]
        assert counted.positions == tuple(kept)


@pytest.mark.parametrize("name", ["plain", "draft", "ngram", "eos"])
def test_every_event_but_the_first_is_a_target_pass(name: str) -> None:
    """Which the counts have to say without knowing it: they see sums, not events."""
    for one in heard(name):
        cycles = one.counts.num_cycles
        if name == "plain":
            cycles = one.reply.num_tokens - 1
        assert cycles == len(one.sizes) - 1, one.prompt
        assert sum(one.sizes) == one.reply.num_tokens == len(one.reply.token_ids)


def test_texts_with_drafts_are_the_plain_texts() -> None:
    plain = {one.prompt: one.reply.token_ids for one in heard("plain")}
    for name in ("draft", "ngram"):
        for one in heard(name):
            assert one.reply.token_ids == plain[one.prompt]


def test_cycles_of_a_copy_are_tokens_less_one_less_accepted_and_vllms_mean_says_less() -> None:
    """`mean_acceptance_length` is over steps with a draft; the others emit a token each."""
    *_, copied = heard("ngram")
    counts, block = copied.counts, copied.block
    assert counts.num_cycles is not None
    assert counts.num_undrafted
    steps, over = len(copied.sizes) - 1, _over(copied)
    assert steps == copied.reply.num_tokens - 1 - block["num_accepted_draft_tokens"] + over
    assert counts.num_cycles == steps
    per_step = (copied.reply.num_tokens - 1) / counts.num_cycles
    assert per_step == pytest.approx(sum(copied.sizes[1:]) / (len(copied.sizes) - 1))
    assert block["mean_acceptance_length"] > per_step + 0.5


def _over(one: Heard) -> int:
    """Tokens that the last step decided and did not deliver, by hand."""
    kept = one.block["per_step_accepted"][-1]
    return kept + 1 - one.sizes[-1] if one.sizes[-1] > 1 or kept == 0 else 0


def test_drafts_behind_an_eos_are_counted_by_vllm_and_not_here() -> None:
    behind = [one for one in heard("eos") if one.block and _ran_over(one)]
    assert behind
    for one in behind:
        told = one.reply.counted
        assert told is not None
        short = one.reply.num_tokens - 1 - one.block["num_accepted_draft_tokens"]
        assert short < len(one.sizes) - 1 == one.counts.num_cycles
        assert one.counts.num_accepted is not None
        assert one.counts.num_accepted < one.block["num_accepted_draft_tokens"]
        # A draft that was kept is in the text; the last step's text is its kept drafts alone.
        last = one.sizes[-1]
        assert one.counts.num_accepted == sum(n - 1 for n in one.sizes[1:-1]) + last
        # Totals alone cannot see it: as many cycles, but what was kept stays too much.
        blind = from_counted(Asked(3, 1, one.reply.num_tokens), told)
        assert (blind.num_cycles, blind.num_accepted) == (
            one.counts.num_cycles, one.block["num_accepted_draft_tokens"],
        )  # fmt: skip
        assert one.reply.finish_reason == "eos"


def _ran_over(one: Heard) -> bool:
    return bool(one.block["num_spec_steps"]) and (
        one.block["num_accepted_draft_tokens"] + one.block["num_spec_steps"]
        > one.reply.num_tokens - 1
    )


def test_drafts_of_a_step_are_told_in_the_order_of_the_text() -> None:
    for one in heard("draft"):
        kept = one.block["per_step_accepted"]
        emitted = [size - 1 for size in one.sizes[1:]]
        assert kept[:-1] == emitted[:-1]
        assert kept[-1] >= emitted[-1]


def test_counters_only_grow_over_a_recording() -> None:
    for name in ("plain", "draft", "ngram", "eos"):
        said = server(name)
        assert len(said["metrics"]) == len(said["requests"]) + 1
        assert all(before != after for before, after in pairwise(said["metrics"]))


def test_a_body_that_is_not_what_was_recorded_is_noticed() -> None:
    """So that the recording is refreshed when the client's requests change."""
    said = server("plain")
    request = said["requests"][0]
    with replayed(said) as url:
        service = open_service(address_of(url, "x", retries=0), ["recorded"], PROBE, "x")
        other = Prompt("1", "", "x", (*request["body"]["prompt"], 5))
        with pytest.raises(Exception, match="not what was recorded"):
            ask(service.address, service.api, Ask("recorded", other, Sampling(0.0), 40, 0))


def test_steps_of_the_client_add_up_to_its_counts() -> None:
    for one in heard("draft"):
        told = one.reply.counted
        assert told is not None
        steps = aligned(told, one.reply.sizes, 3, ended_by_eos=False, own_length=False)
        assert steps is not None
        assert from_steps(Asked(3, 1, one.reply.num_tokens), steps) == one.counts
