"""llama.cpp: responses of llama-server with `timings`, and what its programs print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from specbench.calculator import counter_values as values
from specbench.calculator.counter_checks import check_counts
from specbench.calculator.counter_values import Place
from specbench.errors import UsageError
from specbench.importers import doubts
from specbench.importers.fields import MISSING, Fields, failure, name_of, seconds
from specbench.importers.model import Group, Request, Source, Told
from specbench.importers.stream import Doc
from specbench.wording import count, one_line

KEYS = ("id", "model", "timings", "predicted_n", "predicted_ms", "draft_n", "draft_n_accepted")
PER_TOKEN, PER_SECOND = "predicted_per_token_ms", "predicted_per_second"
TIMES = ("prompt_n", "prompt_ms", "cache_n", PER_TOKEN, PER_SECOND)
TOLD = ("usage", "tokens_predicted", "error")
NAMES = {"num_drafted": "draft_n", "num_accepted": "draft_n_accepted"}
LONGEST_LINE = 1 << 20

_PRINTED = re.compile(
    r"(?:^|[\s:])(?P<name>n_draft|n_predict|n_drafted|n_accept)\s+=\s+(?P<value>\S+)\s*$"
)
_DECODED = re.compile(r"\b(?P<name>en|de)coded\s+(?P<tokens>\S+) tokens in\s+(?P<time>\S+) seconds")
_EVAL = re.compile(r"(?P<prompt>prompt )?eval time =\s+(?P<time>\S+) ms /\s+(?P<tokens>\S+) tokens")
_SHARE = re.compile(r"(?:^|[\s:])accept\s+=\s+(?P<share>[0-9.]+)%\s*$")
_RATE = re.compile(
    r"draft acceptance(?: rate)? =\s+(?P<rate>\S+) "
    r"\(\s*(?P<accepted>\S+) accepted /\s*(?P<drafted>\S+) gen"
)


def read(docs: Iterable[Doc], told: Told) -> Source:
    """One group: the responses of one server."""
    requests, seen = [], dict[str, int]()
    target = told.target
    for number, doc in enumerate(docs, 1):
        known = Fields({key: doc.get(key) for key in (*KEYS, *TIMES, *TOLD)}, doc.place)
        target = target or known.text("model")
        times = known.part("timings") if known.known("timings") else known
        name = name_of(known.members["id"]) or str(number)
        first = seen.setdefault(name, number)
        if first != number:
            known.at("id").refuse(f"the response {name[:40]} stands twice", "leave one of them out")
        reason = "" if times.known("predicted_n") else failure(known)
        if reason:
            requests.append(Request(name, doc.place, status="error", reason=reason))
        else:
            requests.append(replace(_response(name, times), doubts=_contradictions(known, times)))
    return _source(requests, told, target)


def _response(name: str, times: Fields) -> Request:
    tokens = times.need("predicted_n")
    counts = {n: times.count(key) or 0 for n, key in NAMES.items()}
    prompt, cached = times.count("prompt_n"), times.count("cache_n")
    if prompt is not None:
        counts["num_prompt_tokens"] = prompt + (cached or 0)
    return _timed(
        name, times.place, counts, tokens, times.seconds("prompt_ms", 1e-3),
        times.seconds("predicted_ms", 1e-3), first_with_prompt=True,
    )  # fmt: skip


def _contradictions(known: Fields, times: Fields) -> dict[str, str]:
    """Figures of a response, by key, that its counts do not give."""
    tokens, spent = times.need("predicted_n"), times.seconds("predicted_ms")
    found = {"tokens_predicted": doubts.differs(known.members.get("tokens_predicted"), tokens)}
    usage = known.part("usage").members.get("completion_tokens")
    found["completion_tokens"] = doubts.differs(usage, tokens)
    # Releases differ in whether the first token, of the prompt pass, is among those timed.
    timed = [n for n in (tokens, tokens - 1) if n > 0]
    if spent and timed:
        given = {
            PER_TOKEN: [spent / n for n in timed],
            PER_SECOND: [1000 * n / spent for n in timed],
        }
        for key, rates in given.items():
            told = [doubts.differs(times.members.get(key), one) for one in rates]
            found[key] = told[0] if all(told) else ""
    return found


def _timed(
    name: str,
    place: Place,
    counts: dict[str, int],
    tokens: int,
    prefill_s: float | None,
    live_s: float | None,
    *,
    first_with_prompt: bool,
) -> Request:
    """A request whose cycles are the decoded tokens that no draft gave.

    llama-server takes the first token from the prompt pass, and its time starts behind it.
    """
    check_counts(place, counts, NAMES if place.word == "key" else {})
    decoded = max(tokens - first_with_prompt, 0)
    cycles = decoded - counts["num_accepted"]
    if cycles > 0 or not (decoded or counts["num_drafted"]):
        counts = {**counts, "num_cycles": cycles}
    elif counts["num_accepted"]:
        what = (
            f"{count(counts['num_accepted'], 'draft')} kept among {count(decoded, 'decoded token')}"
        )
        place.refuse(what, "each step adds a token that is no draft; timings of one request")
    return Request(
        name,
        place,
        {**counts, "num_output_tokens": tokens},
        prefill_s=prefill_s,
        live_s=live_s,
        timed_tokens=decoded,
    )


def _source(requests: list[Request], told: Told, target: str) -> Source:
    gamma = told.gamma
    good = [one for one in requests if one.status == "ok"]
    place = requests[0].place
    if not good:
        place.refuse("every request failed", f"the server said: {one_line(requests[0].reason)}")
    if gamma is None and not any(r.counts["num_drafted"] for r in good):
        gamma = 0
    drafted, cycles = (sum(r.counts.get(n, 0) for r in good) for n in _LENGTHS)
    # Drafts kept behind an end are counted and not delivered: up to γ for each request.
    if gamma and drafted > gamma * (cycles + gamma * len(good)):
        what = (
            f"{count(drafted, 'token')} drafted in {count(cycles, 'step')}: more than {gamma} each"
        )
        place.refuse(what, "--gamma: the most that a step drafts")
    group = Group(
        place,
        draft=told.draft,
        gamma=gamma,
        temperature=told.temperature,
        requests=tuple(requests),
        lengths_vary=gamma is None or drafted != gamma * cycles,
    )
    return Source((group,), {"engine": "llamacpp", "target": target})


_LENGTHS = ("num_drafted", "num_cycles")


def read_log(path: Path, told: Told) -> Source:
    """What llama-speculative prints at its end, or llama-server after each request."""
    requests = list(_logged(path))
    if not requests:
        raise UsageError(
            f"{path} holds no statistics of speculative decoding",
            hint="the lines with n_drafted and n_accept, or draft acceptance rate",
        )
    return _source(requests, told, told.target)


def has_statistics(line: str) -> bool:
    """Whether a line is one of those that are read."""
    return any(pattern.search(line) for pattern in (_PRINTED, _RATE))


def lines_of(path: Path) -> Iterator[str]:
    """Lines of a log, each cut where no statistics are that long."""
    with path.open("rb") as file:
        while raw := file.readline(LONGEST_LINE):
            yield raw.decode("utf-8", "replace").rstrip()


def _logged(path: Path) -> Iterator[Request]:
    """A request per block of lines; the line with the drafts kept ends one."""
    found: dict[str, str] = {}
    last: list[Request] = []
    for number, line in enumerate(lines_of(path), 1):
        place = Place(str(path), number)
        if printed := _PRINTED.search(line):
            found[printed["name"]] = printed["value"]
            if printed["name"] == "n_accept":
                yield from last
                last, found = [_printed(place, found)], {}
        elif share := _SHARE.search(line):
            yield from (_with_share(one, share["share"]) for one in last)
            last = []
        elif rate := _RATE.search(line):
            found |= {"n_accept": rate["accepted"], "n_drafted": rate["drafted"]}
            found["rate"] = rate["rate"]
            yield _served(place, found)
            found = {}
        elif took := _DECODED.search(line):
            found |= {f"{took['name']}_tokens": took["tokens"], f"{took['name']}_s": took["time"]}
        elif eval_time := _EVAL.search(line):
            kind = "en" if eval_time["prompt"] else "de"
            found |= {f"{kind}_tokens": eval_time["tokens"], f"{kind}_ms": eval_time["time"]}
    yield from last


def _with_share(one: Request, share: str) -> Request:
    """A request of llama-speculative with the share that it prints behind it."""
    accepted, drafted = (one.counts.get(name) for name in ("num_accepted", "num_drafted"))
    told = doubts.differs(share, doubts.rate(accepted, drafted, 100), " %")
    return replace(one, doubts={**one.doubts, "accept": told})


def _number(found: dict[str, str], name: str, place: Place) -> int | None:
    return values.count(name, found[name], place) if name in found else None


def _time(found: dict[str, str], name: str, place: Place) -> float | None:
    if f"{name}_ms" in found:
        return seconds(found[f"{name}_ms"], place, 1e-3)
    return seconds(found[f"{name}_s"], place) if f"{name}_s" in found else None


def _printed(place: Place, found: dict[str, str]) -> Request:
    """llama-speculative: n_predict counts every token that was decoded."""
    drafted, accepted, tokens = (
        _number(found, name, place) for name in ("n_drafted", "n_accept", "n_predict")
    )
    if drafted is None or accepted is None or tokens is None:
        place.refuse("no n_predict and n_drafted before n_accept", MISSING)
    counts = {"num_drafted": drafted, "num_accepted": accepted}
    prompt = _number(found, "en_tokens", place)
    counts |= {"num_prompt_tokens": prompt} if prompt is not None else {}
    first, rest = _time(found, "en", place), _time(found, "de", place)
    name = str(place.line)
    made = _timed(name, place, counts, tokens, first, rest, first_with_prompt=False)
    decoded = doubts.differs(found.get("de_tokens"), tokens)
    return replace(made, doubts={"decoded tokens": decoded})


def _served(place: Place, found: dict[str, str]) -> Request:
    drafted, accepted = (_number(found, name, place) for name in ("n_drafted", "n_accept"))
    tokens = _number(found, "de_tokens", place)
    if tokens is None:
        place.refuse("no eval time before the draft acceptance", "the whole log of llama-server")
    counts = {"num_drafted": drafted or 0, "num_accepted": accepted or 0}
    prompt = _number(found, "en_tokens", place)
    counts |= {"num_prompt_tokens": prompt} if prompt is not None else {}
    first, rest = _time(found, "en", place), _time(found, "de", place)
    name = str(place.line)
    made = _timed(name, place, counts, tokens, first, rest, first_with_prompt=True)
    share = doubts.rate(accepted, drafted)
    return replace(made, doubts={"draft acceptance": doubts.differs(found["rate"], share)})
