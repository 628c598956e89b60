"""Responses of a vLLM server with --per-request-spec-decode-metrics summary or detailed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from specbench.calculator.counter_checks import check_counts
from specbench.calculator.counter_values import Place
from specbench.importers import doubts
from specbench.importers.fields import MISSING, Fields, draft_length, failure, name_of
from specbench.importers.model import Group, Request, Source, Steps, Told, sums_of
from specbench.importers.stream import Doc

BLOCK = "speculative_decoding"
COUNTS = {
    "num_cycles": "num_spec_steps",
    "num_drafted": "num_draft_tokens",
    "num_accepted": "num_accepted_draft_tokens",
}
LENGTH, RATE = "mean_acceptance_length", "draft_acceptance_rate"
KEYS = (
    *("id", "model", "usage", "metrics", "prompt_tokens", BLOCK),
    *("acceptance_histogram", "acceptance_histogram_by_draft_length", "num_spec_tokens"),
    *("per_step_accepted", "per_step_drafted", LENGTH, RATE, "error", *COUNTS.values()),
)


def read(docs: Iterable[Doc], told: Told) -> Source:
    """One group: all responses of a file have the same γ."""
    requests: list[Request] = []
    seen = dict[str, int]()
    gammas: dict[int | None, Place] = {}
    target = told.target
    for number, doc in enumerate(docs, 1):
        whole = Fields({key: doc.get(key) for key in KEYS}, doc.place)
        target = target or whole.text("model")
        name = name_of(whole.members["id"]) or str(number)
        if seen.setdefault(name, number) != number:
            whole.at("id").refuse(f"the response {name[:40]} stands twice", "leave one of them out")
        block = block_of(whole)
        if block is None:
            missing = "no speculative_decoding block: n > 1, or no metrics asked for"
            missing = failure(whole) or missing
            requests.append(Request(name, doc.place, status="error", reason=missing))
            continue
        gamma = draft_length(block.count("num_spec_tokens"), block.at("num_spec_tokens"))
        gammas.setdefault(told.gamma if gamma is None else gamma, doc.place)
        requests.append(_request(name, whole, block))
    if len(gammas) > 1:
        list(gammas.values())[1].refuse("requests of different num_spec_tokens", "a file for each")
    if not gammas:
        requests[0].place.refuse(f"no {BLOCK} block in any response", MISSING)
    place = requests[0].place
    gamma = next(iter(gammas))
    varied = any(d != gamma for r in requests for d, _ in r.steps or {})
    group = Group(
        place,
        draft=told.draft,
        gamma=gamma,
        temperature=told.temperature,
        requests=tuple(requests),
        lengths_vary=varied,
    )
    return Source((group,), {"engine": "vllm", "target": target})


def block_of(whole: Fields) -> Fields | None:
    """The block of a response, of a record that holds it as `metrics`, or of itself."""
    metrics = whole.part("metrics")
    for part in (metrics.part(BLOCK), whole.part(BLOCK), metrics, whole):
        if part.known("num_spec_steps"):
            return part
    return None


def _request(prompt_id: str, whole: Fields, block: Fields) -> Request:
    counts = {name: block.need(key) for name, key in COUNTS.items()}
    check_counts(block.place, counts, COUNTS)
    steps = _steps(block, counts)
    if steps is not None:
        found = sums_of(steps)
        for name, key in COUNTS.items():
            if found[name] != counts[name]:
                what = f"the histogram gives {key} {found[name]}, the block says {counts[name]}"
                block.at(key).refuse(what, "the response as the server sent it")
        counts = found
    usage = whole.part("usage")
    for name, tokens in (
        ("num_output_tokens", usage.count("completion_tokens")),
        ("num_prompt_tokens", usage.count("prompt_tokens") or whole.count("prompt_tokens")),
    ):
        if tokens is not None:
            counts[name] = tokens
    told = _contradictions(block, counts, steps)
    return Request(prompt_id, block.place, counts, steps, doubts=told)


def _contradictions(
    block: Fields, counts: Mapping[str, int], steps: Steps | None
) -> dict[str, str]:
    """Figures of a block, by key, that its counts do not give."""
    said, gamma = block.members, block.count("num_spec_tokens")
    listed = block.counts("acceptance_histogram")
    cycles, drafted, accepted, tokens = (
        counts.get(name) for name in (*COUNTS, "num_output_tokens")
    )
    found = {RATE: doubts.differs(said.get(RATE), doubts.rate(accepted, drafted))}
    if cycles:
        found[LENGTH] = doubts.differs(said.get(LENGTH), 1 + Fraction(accepted or 0, cycles))
    # The first token comes with the prompt pass; the last step may decide γ more than come.
    made = (cycles or 0) + (accepted or 0)
    if tokens is not None and gamma is not None and made > max(tokens - 1, 0) + gamma:
        found["completion_tokens"] = f"{tokens} came, the counts make {made}"
    kept = [sum(n for (_, k), n in (steps or {}).items() if k == at) for at in range(len(listed))]
    if steps is not None and listed and kept != listed:
        found["acceptance_histogram"] = f"{listed} is printed, the steps give {kept}"
    return found


def _steps(block: Fields, counts: dict[str, int]) -> Steps | None:
    """Cycles by tokens drafted and kept; None where draft lengths vary and are not told."""
    by_length = block.members.get("acceptance_histogram_by_draft_length")
    if isinstance(by_length, dict):
        inner = Fields(by_length, block.at("acceptance_histogram_by_draft_length"))
        found: dict[tuple[int, int], int] = {}
        for length in by_length:
            if not length.isdecimal() or len(length) > 4:
                inner.place.refuse(f'"{length[:20]}" is no draft length', "whole numbers as keys")
            for kept, cycles in enumerate(inner.counts(length)):
                found[int(length), kept] = cycles
        return _possible(found, block)
    accepted, drafted = block.counts("per_step_accepted"), block.counts("per_step_drafted")
    if len(accepted) != len(drafted):
        block.at("per_step_accepted").refuse("lists of different length", "one entry per step")
    if accepted:
        return _possible(dict(Counter(zip(drafted, accepted, strict=True))), block)
    histogram, gamma = block.counts("acceptance_histogram"), block.count("num_spec_tokens")
    if not histogram or gamma is None or counts["num_drafted"] != gamma * counts["num_cycles"]:
        return None
    return _possible({(gamma, kept): n for kept, n in enumerate(histogram)}, block)


def _possible(steps: dict[tuple[int, int], int], block: Fields) -> Steps:
    for (drafted, kept), cycles in steps.items():
        if cycles and kept > drafted:
            block.place.refuse(f"{kept} of {drafted} drafts kept in one step", "counts of one run")
        draft_length(drafted, block.place)
    return {step: cycles for step, cycles in steps.items() if cycles}
