"""`vllm bench serve`: the JSON of --save-result, with or without --save-detailed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import zip_longest

from specbench.calculator import counter_checks as checks
from specbench.calculator import counter_values as values
from specbench.calculator.counter_file import Counters
from specbench.calculator.counter_values import Figure, Place
from specbench.importers import doubts
from specbench.importers.fields import Fields, fields_of, seconds, shown
from specbench.importers.model import Group, Request, Source, Told
from specbench.importers.stream import Doc

PREFIX = "spec_decode_"
COUNTS = {
    "num_cycles": "spec_decode_num_drafts",
    "num_drafted": "spec_decode_draft_tokens",
    "num_accepted": "spec_decode_accepted_tokens",
}
RATES = "spec_decode_per_position_acceptance_rates"
LENGTH = "spec_decode_acceptance_length"
RATE = "spec_decode_acceptance_rate"
INPUT, OUTPUT, FIRST = "total_input_tokens", "total_output_tokens", "mean_ttft_ms"
FEW = ("model_id", "backend", "endpoint_type", "completed", "failed", "num_prompts", INPUT, OUTPUT)
TIMES = (FIRST, "mean_e2el_ms")
LOAD = ("max_concurrency", "request_rate")
REPORTED = (
    *("mean_tpot_ms", "median_tpot_ms", "mean_itl_ms", "output_throughput"),
    *(*LOAD, RATE),
)
LISTS = ("input_lens", "output_lens", "ttfts", "itls", "errors")


def read(docs: Iterable[Doc], told: Told) -> Source:
    """One group per document; a file of several results has several documents."""
    groups, reported = [], {}
    settings: dict[str, object] = {"engine": "vllm", "target": told.target}
    for number, doc in enumerate(docs, 1):
        known = fields_of(doc, *FEW, *TIMES, *COUNTS.values(), RATES, LENGTH, *REPORTED)
        groups.append(_group(doc, known, told))
        settings["target"] = settings["target"] or known.text("model_id")
        own = {key: shown(known.members[key]) for key in REPORTED if known.known(key)}
        reported.update({key if number == 1 else f"{key}#{number}": v for key, v in own.items()})
    return Source(tuple(groups), settings, reported)


def _group(doc: Doc, known: Fields, told: Told) -> Group:
    counters = _counters(known, told.gamma)
    requests = tuple(_requests(doc))
    columns: dict[str, object] = {
        "num_prompts": known.count("completed"),
        "num_failed": _failed(known),
        "num_output_tokens": known.count(OUTPUT),
        "ttft_ms": known.seconds(FIRST),
        "latency_ms": None if requests else _latency(known),
    }
    return Group(
        doc.place,
        draft=told.draft,
        gamma=counters.counts.get("gamma"),
        temperature=told.temperature,
        counters=counters,
        requests=requests,
        columns=columns,
        prompt_tokens=known.count(INPUT),
        load={key: shown(known.members[key]) for key in LOAD if known.known(key)},
        remarks=tuple(doubts.named(_contradictions(known, counters, requests))),
    )


def _failed(known: Fields) -> int | None:
    """Requests without an answer: early releases count only those that were sent."""
    failed, sent, done = (known.count(key) for key in ("failed", "num_prompts", "completed"))
    if failed is not None or sent is None or done is None:
        return failed
    return max(sent - done, 0)


def _contradictions(
    known: Fields, counters: Counters, requests: Sequence[Request]
) -> dict[str, str]:
    """Figures of the document, by key, that its counters or its lists do not give."""
    said, counts, tau = known.members, counters.counts, counters.figures.get("tau")
    gamma, cycles = counts.get("gamma"), counts.get("num_cycles")
    rate: Figure | Fraction | None = doubts.rate(
        counts.get("num_accepted"), counts.get("num_drafted"), 100
    )
    if rate is None and tau is not None and gamma:
        kept = Figure(tau.value - 1, max(tau.low - 1, 0), tau.high - 1)
        rate = kept.times(100 / gamma)
    found = {RATE: doubts.differs(said.get(RATE), rate, " %")}
    if cycles == 0 and (known.seconds(LENGTH) or 0) > 1:
        found[LENGTH] = f"{shown(said[LENGTH])} is printed, and no step drafted"
    good = [one for one in requests if one.status == "ok"]
    done, failed = known.count("completed"), known.count("failed")
    if done is not None and failed is not None:
        found["num_prompts"] = doubts.differs(said.get("num_prompts"), Fraction(done + failed))
    if requests:
        found |= _totals(said, good, len(requests) - len(good))
    return found | _too_many(known, counts, good)


def _totals(said: Mapping[str, object], good: Sequence[Request], failed: int) -> dict[str, str]:
    """Totals of the document that its lists do not add up to."""
    lists: dict[str, Fraction | float | None] = {
        "completed": Fraction(len(good)),
        "failed": Fraction(failed),
        "num_prompts": Fraction(len(good) + failed),
    }
    for key, name in ((INPUT, "num_prompt_tokens"), (OUTPUT, "num_output_tokens")):
        if good and all(name in one.counts for one in good):
            lists[key] = Fraction(sum(one.counts[name] for one in good))
    firsts = [one.prefill_s for one in good if one.prefill_s is not None]
    if good and len(firsts) == len(good):
        lists[FIRST] = 1000 * math.fsum(firsts) / len(firsts)
    return {
        key: doubts.differs(said.get(key), value, source="the lists of requests")
        for key, value in lists.items()
    }


def _too_many(known: Fields, counts: Mapping[str, int], good: Sequence[Request]) -> dict[str, str]:
    """More tokens by the counters than came: other requests are in them."""
    tokens, done, failed = known.count(OUTPUT), known.count("completed"), _failed(known)
    cycles, accepted, gamma = (counts.get(n) for n in ("num_cycles", "num_accepted", "gamma"))
    if tokens is None or not done or failed or None in (cycles, accepted, gamma):
        return {}
    told = (cycles or 0) + (accepted or 0)
    # The first token comes with the prompt pass; a last step may decide γ tokens more than come.
    if told <= tokens - done + (gamma or 0) * done:
        return {}
    said = f"and {COUNTS['num_accepted']} make {told} tokens, the requests got {tokens}"
    return {COUNTS["num_cycles"]: f"{said}: other requests are in the counters"}


def _counters(known: Fields, gamma: int | None) -> Counters:
    """The server's counters over the benchmark; γ is how many positions it counts."""
    counts = {name: n for name, key in COUNTS.items() if (n := known.count(key)) is not None}
    figures = {}
    # Without a draft the tool writes a length of 0.
    tau = known.figure("tau", LENGTH) if counts.get("num_cycles") != 0 else None
    if tau is not None:
        figures["tau"] = tau
    if gamma is not None:
        counts["gamma"] = gamma
    rates = known.members.get(RATES)
    if not (counts.keys() - {"gamma"} or rates or figures) and gamma != 0:
        hint = "--baseline FILE beside a speculative result, or --gamma 0 for plain decoding"
        known.place.refuse("no spec_decode_ counters: was the server speculating?", hint)
    place, headers = known.place, {name: COUNTS.get(name, name) for name in counts}
    checks.check_counts(place, counts, headers)
    row = Counters(place, counts=counts, figures=figures)
    return _with_rates(row, rates, known.at(RATES)) if rates else row


def _with_rates(row: Counters, rates: object, place: Place) -> Counters:
    """The counters with cycles by position: rates times cycles, where that gives whole numbers."""
    if not isinstance(rates, list):
        place.refuse("no list", "the file as vllm bench serve wrote it")
    found = [values.figure("alpha", shown(rate), place) for rate in rates]
    counts = dict(row.counts)
    counts.setdefault("gamma", len(found))
    shares = tuple(found)
    checks.check_shares(place, shares, counts)
    kept = whole_cycles([one.value for one in found], counts.get("num_cycles"))
    if kept:
        kept = checks.check_kept(place, kept, counts)
        shares = ()
    checks.check_tau(row.place, row.figures.get("tau"), counts.get("gamma"))
    return Counters(row.place, row.label, counts, row.figures, kept=kept, shares=shares)


def whole_cycles(shares: list[float], cycles: int | None) -> tuple[int, ...]:
    """Cycles that kept each position, where shares in full precision give them; else none."""
    if not cycles:
        return ()
    found = [share * cycles for share in shares]
    # A share in double precision is off by parts in 1e16, one that was rounded by far more.
    exact = all(abs(one - round(one)) <= 1e-9 * max(cycles, 1) for one in found)
    return tuple(round(one) for one in found) if exact and cycles < 10**8 else ()


def _latency(known: Fields) -> float | None:
    """Decode milliseconds per token after the first, from means over the same requests."""
    completed, tokens = known.count("completed"), known.count(OUTPUT)
    first, whole = known.seconds(FIRST), known.seconds("mean_e2el_ms")
    if not completed or tokens is None or first is None or whole is None or tokens <= completed:
        return None
    if whole < first:
        known.at("mean_e2el_ms").refuse("the whole request ends before its first token")
    return completed * (whole - first) / (tokens - completed)


def _requests(doc: Doc) -> Iterator[Request]:
    """The requests of --save-detailed, in the order in which they were sent."""
    if "output_lens" not in doc:
        return
    places = [doc.at(key) for key in LISTS]
    # Millions of gaps: their digits are of no account, and doubles are read much faster.
    columns = [doc.elements(key, float if key == "itls" else Decimal) for key in LISTS]
    for number, row in enumerate(zip_longest(*columns), 1):
        prompt, tokens, first, gaps, error = row
        if tokens is None:
            places[1].refuse(f"no length of request {number}", "lists of one length")
        counts = {"num_output_tokens": values.count("tokens", shown(tokens), places[1])}
        if prompt is not None:
            counts["num_prompt_tokens"] = values.count("tokens", shown(prompt), places[0])
        failed = str(error or "")
        yield Request(
            str(number),
            doc.place,
            {} if failed else counts,
            prefill_s=None if first is None or failed else seconds(first, places[2]),
            live_s=None if failed else _decode_s(gaps, places[3]),
            timed_tokens=None if failed else max(counts["num_output_tokens"] - 1, 0),
            status="error" if failed else "ok",
            reason=failed,
        )


def _decode_s(gaps: object, place: Place) -> float | None:
    """Seconds from the first token to the last one: the sum of the gaps between chunks."""
    if not isinstance(gaps, list):
        return None
    try:
        total, least = math.fsum(map(float, gaps)), min(gaps, default=0)
        possible = math.isfinite(total) and least >= 0
    except (TypeError, ValueError, OverflowError):
        possible = False
    if not possible:
        place.refuse("a gap between tokens that is no time", "times are 0 or more")
    return total
