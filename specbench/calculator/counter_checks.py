"""Counters that no run can have: refused with the columns that contradict each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

from specbench.calculator import counter_values as values
from specbench.calculator.counter_values import Figure, Place
from specbench.settings.gamma import LARGEST
from specbench.wording import count

_NOT_ABOVE = (
    ("num_accepted", "num_drafted"),
    ("num_accepted", "num_tested"),
    ("num_tested", "num_drafted"),
    ("num_full_accept", "num_cycles"),
)


def check_counts(place: Place, counts: Mapping[str, int], headers: Mapping[str, str]) -> None:
    """Refuse counts of one row that cannot stand side by side."""
    _check_none(place, counts, headers)
    gamma, cycles, accepted = (counts.get(n) for n in ("gamma", "num_cycles", "num_accepted"))
    limits = [
        (part, headers.get(whole, whole), counts[whole])
        for part, whole in _NOT_ABOVE
        if whole in counts
    ]
    if cycles is not None:
        most_drafts = f"{LARGEST} × {headers.get('num_cycles', 'num_cycles')},"
        limits.append(("num_drafted", most_drafts, LARGEST * cycles))
    if gamma is not None and cycles is not None:
        product = f"gamma × {headers.get('num_cycles', 'num_cycles')},"
        limits += [(part, product, gamma * cycles) for part in ("num_drafted", "num_accepted")]
    if gamma and accepted is not None:
        limits.append(("num_full_accept", "num_accepted / gamma,", accepted // gamma))
    if accepted is not None and cycles is not None:
        limits.append(("num_tested", "num_accepted + num_cycles,", accepted + cycles))
    for part, limit, most in limits:
        if counts.get(part, 0) > most:
            here = replace(place, column=headers.get(part, ""))
            what = f"{headers.get(part, part)} {counts[part]} exceeds {limit} {most}"
            here.refuse(what, "counts of the same run and time")


def _check_none(place: Place, counts: Mapping[str, int], headers: Mapping[str, str]) -> None:
    """Refuse tokens of no cycle, and drafts of a draft length of 0."""
    for name in ("num_cycles", "gamma"):
        for part in ("num_drafted", "num_tested", "num_accepted"):
            if counts.get(name) == 0 and counts.get(part, 0) > 0:
                here = replace(place, column=headers.get(part, ""))
                what = (
                    f"{headers.get(part, part)} is {counts[part]}, {headers.get(name, name)} is 0"
                )
                here.refuse(what, "counts of the same run; empty where a count is not known")


def draft_length(counts: Mapping[str, int]) -> int | None:
    """γ as given, or as drafted tokens per cycle where that is a whole number."""
    cycles, drafted = counts.get("num_cycles"), counts.get("num_drafted")
    if "gamma" in counts or not cycles or drafted is None or drafted % cycles:
        return counts.get("gamma")
    return drafted // cycles


def check_tau(place: Place, tau: Figure | None, gamma: int | None) -> None:
    """Refuse more tokens per cycle than a cycle can emit."""
    if tau is not None and gamma is not None and tau.low > gamma + 1:
        place.refuse(f"{tau.value:g} exceeds gamma + 1, {gamma + 1}", "is gamma right?")


def check_kept(place: Place, found: Sequence[int], counts: dict[str, int]) -> tuple[int, ...]:
    """Refuse cycles per position that grow or contradict the totals; fill in their sum.

    Positions that are left out after the last kept draft are 0, and returned as such.
    """
    kept = tuple(found)
    cycles, gamma = counts.get("num_cycles"), draft_length(counts)
    for before, after in pairwise(kept):
        if after > before:
            place.refuse(
                f"{count(after, 'cycle')} kept one draft more than {before} did", _CUMULATIVE
            )
    if cycles is not None and kept[0] > cycles:
        place.refuse(
            f"{count(kept[0], 'cycle')} kept the first draft, of {cycles}", "counts of one run"
        )
    if gamma is not None and any(kept[gamma:]):
        place.refuse(f"drafts kept at position {gamma + 1}, gamma is {gamma}", "is gamma right?")
    total, whole_list = sum(kept), gamma is None or len(kept) >= gamma or kept[-1] == 0
    if whole_list:
        counts.setdefault("num_accepted", total)
    accepted = counts.get("num_accepted")
    if accepted is not None and (accepted < total or (whole_list and accepted != total)):
        what = f"positions add up to {total}, accepted is {accepted}"
        place.refuse(what, "counts of the same run and time")
    if gamma and accepted == total:
        kept += (0,) * (gamma - len(kept))
    full = counts.get("num_full_accept")
    if gamma and full is not None and len(kept) >= gamma and full != kept[gamma - 1]:
        what = f"{count(kept[gamma - 1], 'cycle')} kept all drafts, num_full_accept is {full}"
        place.refuse(what, "counts of the same run and time")
    return kept


def check_shares(place: Place, shares: Sequence[Figure], counts: Mapping[str, int]) -> None:
    """Refuse shares per position that grow, as conditional rates do."""
    gamma = draft_length(counts)
    if counts.get("num_cycles") == 0 and shares[0].low > 0:
        what = f"a share of {shares[0].value:g} of 0 cycles"
        place.refuse(what, "counts of the same run; empty where a count is not known")
    for before, after in pairwise(shares):
        if after.low > before.high:
            place.refuse(f"{after.value:g} follows {before.value:g}", _CUMULATIVE)
    if gamma is not None and len(shares) > gamma:
        place.refuse(f"{count(len(shares), 'position')}, gamma is {gamma}", "is gamma right?")


def whole(place: Place, found: Sequence[Decimal]) -> tuple[int, ...]:
    """Counts per position."""
    out = []
    for number in found:
        shown = f'"{number:.6g}"'
        one = values.whole_number(number, values.LARGEST_COUNT, shown, place)
        if one is None:
            place.refuse(f"{shown} is neither a count nor a share", "12/7/3 or .66/.36/.17")
        out.append(one)
    return tuple(out)


def survivors(place: Place, found: Sequence[Decimal], counts: dict[str, int]) -> tuple[int, ...]:
    """Cycles by drafts kept, from 0, as cycles that kept 1, 2, …; totals are filled in."""
    by_kept = whole(place, found)
    totals = {
        "num_cycles": sum(by_kept),
        "num_accepted": sum(kept * cycles for kept, cycles in enumerate(by_kept)),
    }
    for name, total in totals.items():
        if counts.setdefault(name, total) != total:
            what = f"the histogram gives {name} {total}, the row says {counts[name]}"
            place.refuse(what, "cycles by drafts kept: none, one, two, …")
    return tuple(sum(by_kept[kept:]) for kept in range(1, len(by_kept)))


_CUMULATIVE = "per position: cycles that kept this draft and all before it, over all cycles"
