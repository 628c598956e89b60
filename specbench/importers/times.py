"""Times of requests as latency and speedup, paired with a baseline's where both have the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench.estimators.intervals import Interval, effective_number, jackknife
from specbench.estimators.sums import Columns, ratio
from specbench.importers.model import Group, Request, Row

Timed = dict[str, tuple[float, float]]
"""Seconds and tokens by request."""


@dataclass(frozen=True)
class Weighed(Columns):
    """Sums by request, weighed by one of their columns."""

    weight: int = 0

    @property
    def effective(self) -> float:
        """Requests of equal weight that would tell as much."""
        return effective_number(self.rows[:, self.weight])


def weighed(rows: Sequence[Sequence[float]], weight: int) -> Columns:
    """Sums by request, each weighed by its own in one column."""
    return Weighed(np.array(rows, dtype=np.float64), weight=weight)


def bounds(name: str, found: Interval, scale: float = 1.0, unit: str = "") -> Row:
    """The columns of an interval; none where there is none."""
    if found.low is None or found.high is None:
        return {}
    return {f"{name}_low{unit}": scale * found.low, f"{name}_high{unit}": scale * found.high}


def _timed(requests: Sequence[Request]) -> dict[str, tuple[float, float]]:
    """Decode seconds and the tokens that came in them, by request; empty if one has none."""
    out = {}
    for one in requests:
        if one.live_s is None or one.timed_tokens is None:
            return {}
        out[one.key] = (one.live_s, float(one.timed_tokens))
    return out


def _whole(requests: Sequence[Request]) -> dict[str, tuple[float, float]]:
    """The same with the prompt pass."""
    out = {}
    for one in requests:
        if one.whole_s is None or not one.counts.get("num_output_tokens"):
            return {}
        out[one.key] = (one.whole_s, float(one.counts["num_output_tokens"]))
    return out


def times(good: Sequence[Request]) -> Row:
    """Decode time per token as a ratio of totals; empty where a request has no time."""
    timed = _timed(good)
    tokens = sum(n for _, n in timed.values())
    if not tokens or not sum(s for s, _ in timed.values()):
        return {}
    sums = weighed(list(timed.values()), 1)
    found = jackknife(lambda s: s.ratio(0, 1), sums, log=True)
    value = None if found.value is None else 1000 * found.value
    return {"latency_ms": value, **bounds("latency", found, 1000, "_ms")}


def speed(row: Row, good: Sequence[Request], baseline: Group | None, *, plain: bool) -> Row:
    """Against the baseline: paired by request where both have the same ones."""
    if plain:
        return {"speedup": 1.0, "baseline_latency_ms": row.get("latency_ms")}
    if baseline is None:
        return {}
    others = [one for one in baseline.requests if one.status == "ok"]
    alike = _same_prompts(good, others)
    out: Row = {}
    for name, of in (("speedup", _timed), ("speedup_e2e", _whole)):
        pair = _paired(of(good), of(others)) if alike else None
        if pair is not None:
            found = jackknife(lambda s: ratio(s.ratio(2, 3), s.ratio(0, 1)), pair, log=True)
            out[name] = found.value
            if name == "speedup":
                out |= bounds("speedup", found)
                out["baseline_latency_ms"] = 1000 * float(pair.total().ratio(2, 3)[0])
    own, other = row.get("latency_ms"), _plain_latency(baseline, others)
    if "speedup" not in out and isinstance(own, float) and own and other is not None:
        out |= {"speedup": other / own, "baseline_latency_ms": other}
    return out


def _plain_latency(baseline: Group, plain: Sequence[Request]) -> float | None:
    found = times(plain).get("latency_ms") or baseline.columns.get("latency_ms")
    return found if isinstance(found, float) else None


def _same_prompts(own: Sequence[Request], plain: Sequence[Request]) -> bool:
    """Whether requests of one name have prompts of one length, as far as lengths are told."""
    lengths = {one.key: one.counts.get("num_prompt_tokens") for one in plain}
    both = [(one.counts.get("num_prompt_tokens"), lengths.get(one.key)) for one in own]
    return all(a == b for a, b in both if a is not None and b is not None)


def _paired(own: Timed, plain: Timed) -> Columns | None:
    """Seconds and tokens of both, over the requests that both answered."""
    common = [key for key in own if key in plain]
    if not common:
        return None
    sums = weighed([[*own[key], *plain[key]] for key in common], 1)
    return sums if (sums.rows.sum(axis=0) > 0).all() else None
