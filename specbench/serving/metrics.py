"""Prometheus counters of a server, before and after some requests, and whose requests they count.

The text format is a line per sample; reading the few counters that matter takes one expression, so
that no library for it is asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from specbench.engine_table import OTHER_CLIENT
from specbench.serving.faults import ServerFault
from specbench.serving.steps import Counted

_SAMPLE = re.compile(
    r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?'
    r"\s+(?P<value>\S+)(?:\s+-?[0-9]+)?\s*"
)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")

NAMES: dict[str, tuple[str, ...]] = {
    "tokens": (
        "vllm:generation_tokens_total",
        "llamacpp:tokens_predicted_total",
        "sglang:generation_tokens_total",
    ),
    "requests": ("vllm:request_success_total", "sglang:num_requests_total"),
    "drafts": (
        "vllm:spec_decode_num_drafts_total",
        "llamacpp:spec_decode_num_drafts_total",
    ),
    "drafted": (
        "vllm:spec_decode_num_draft_tokens_total",
        "llamacpp:spec_decode_num_draft_tokens_total",
    ),
    "accepted": (
        "vllm:spec_decode_num_accepted_tokens_total",
        "llamacpp:spec_decode_num_accepted_tokens_total",
    ),
    "position": (
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
    ),
}
"""Counters by what they count. Samples of several engines or reasons are summed."""
MOST_POSITIONS = 1024
BUSY = (
    *("vllm:num_requests_running", "vllm:num_requests_waiting"),
    *("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    *("sglang:num_running_reqs", "sglang:num_queue_reqs"),
)
"""Gauges of requests that are under way."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of one server at one moment, or what they grew by."""

    values: Mapping[str, int]
    """By the names of `NAMES` without `position`; what the server does not count is absent."""
    positions: tuple[int, ...] = ()
    busy: int = 0
    """Requests under way."""

    def since(self, before: Counters) -> Counters:
        """What was counted between two moments; a counter that fell was reset in between."""
        missing = sorted(before.values.keys() - self.values.keys())
        fell = [n for n, value in self.values.items() if value < before.values.get(n, 0)]
        width = max(len(self.positions), len(before.positions))
        after, first = (_padded(c.positions, width) for c in (self, before))
        grown = tuple(a - b for a, b in zip(after, first, strict=True))
        if missing or fell or min(grown, default=0) < 0:
            raise ServerFault("reply", "its counters fell during the run: the server was restarted")
        values = {n: value - before.values.get(n, 0) for n, value in self.values.items()}
        return Counters(values, grown, self.busy)

    def counted(self) -> Counted | None:
        """The drafts among them; None where the server counts none."""
        if "accepted" not in self.values:
            return None
        given = self.values
        return Counted(
            given.get("drafted"), given["accepted"], given.get("drafts"), positions=self.positions
        )


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    r"""Name, labels and value of each sample in Prometheus' text format, version 0.0.4.

    Lines that are no sample are passed over.

    References
    ----------
    Prometheus, "Exposition formats", text-based format.

    Examples
    --------
    >>> list(samples('# TYPE a counter\na_total{path="C:\\\\x\\"y}"} 1.5e3 1395066363000'))
    [('a_total', {'path': 'C:\\x"y}'}, 1500.0)]
    """
    for line in text.splitlines():
        found = _SAMPLE.fullmatch(line.strip())
        if found is None or line.lstrip().startswith("#"):
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        labels = {name: _plain(text) for name, text in _LABEL.findall(found["labels"] or "")}
        yield found["name"], labels, value


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda one: "\n" if one[1] == "n" else one[1], text)


def counters(text: str) -> Counters:
    """The counters of `NAMES` in a server's metrics."""
    meanings = {name: what for what, names in NAMES.items() for name in names}
    sums: dict[str, float] = {}
    kept: dict[int, float] = {}
    busy = 0.0
    for name, labels, value in samples(text):
        # Older prometheus clients leave the suffix away.
        what = meanings.get(name) or meanings.get(f"{name}_total")
        if name in BUSY:
            busy += value
        elif what == "position" and labels.get("position", "").isdecimal():
            at = int(labels["position"])
            kept[at] = kept.get(at, 0.0) + value
        elif what is not None:
            sums[what] = sums.get(what, 0.0) + value
    width = max(kept, default=-1) + 1
    if width > MOST_POSITIONS:
        raise ServerFault("reply", f"{width} draft positions in its metrics")
    return Counters(
        {name: _whole(name, value) for name, value in sums.items()},
        tuple(_whole("position", kept.get(at, 0.0)) for at in range(width)),
        _whole("requests under way", busy),
    )


def _whole(name: str, value: float) -> int:
    if not math.isfinite(value) or value < 0 or value != int(value):
        raise ServerFault("reply", f"its metrics give {name} {value:g}")
    return int(value)


def _padded(values: tuple[int, ...], width: int) -> tuple[int, ...]:
    return values + (0,) * (width - len(values))


def refuse_others(grown: Counters, tokens: int, requests: int) -> None:
    """Refuse counts of a time in which somebody else's requests ran on the same server."""
    for name, ours in (("tokens", tokens), ("requests", requests)):
        counted = grown.values.get(name, ours)
        if counted != ours:
            why = (
                f"{OTHER_CLIENT} uses it"
                if counted > ours
                else "its /metrics is not of the server that answered (a load balancer?)"
            )
            raise ServerFault(
                "reply", f"it counted {counted} {name} where this run had {ours}: {why}"
            )


def settled(grown: Counters, tokens: int, requests: int) -> bool:
    """Whether the counters hold all that was received; servers count a moment later."""
    wanted: Iterable[tuple[str, int]] = (("tokens", tokens), ("requests", requests))
    return not grown.busy and all(grown.values.get(n, ours) >= ours for n, ours in wanted)
