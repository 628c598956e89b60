"""`vllm bench serve`: the JSON of --save-result, with or without --save-detailed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import zip_longest

from specbench.calculator import counter_checks as checks
from specbench.calculator import counter_values as values
from specbench.calculator.counter_file import Counters
from specbench.calculator.counter_values import Place
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
FEW = ("model_id", "backend", "endpoint_type", "completed", "failed", "total_output_tokens")
TIMES = ("mean_ttft_ms", "mean_e2el_ms")
REPORTED = (
    *("mean_tpot_ms", "median_tpot_ms", "mean_itl_ms", "output_throughput"),
    *("max_concurrency", "request_rate", "spec_decode_acceptance_rate"),
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
    completed, failed = known.count("completed"), known.count("failed")
    columns: dict[str, object] = {
        "num_prompts": completed,
        "num_failed": failed,
        "num_output_tokens": known.count("total_output_tokens"),
        "ttft_ms": known.seconds("mean_ttft_ms"),
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
    )


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
    completed, tokens = known.count("completed"), known.count("total_output_tokens")
    first, whole = known.seconds("mean_ttft_ms"), known.seconds("mean_e2el_ms")
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
