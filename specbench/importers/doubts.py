"""What failed in a file, and where its figures contradict each other: remarks beside an import.

Counts that no run can have are refused where they are read. A figure that a tool made of its own
counts is remarked, as the counts are what is taken over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from math import isfinite

from specbench.calculator import counter_values as values
from specbench.calculator.counter_values import Figure, exact
from specbench.importers.model import Group, Request
from specbench.wording import count, one_line

REASON = 120
"""Characters of a failure's reason that are shown."""


def printed(value: object) -> Figure | None:
    """A JSON number with half of its last digit to both sides; None for anything else.

    A double that is written in full is off by parts in 1e16, which `Figure.near` allows.
    """
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    text = str(value)
    return values.printed(Decimal(text.strip())) if values.is_number(text) else None


def differs(
    said: object,
    found: Figure | Fraction | float | None,
    unit: str = "",
    source: str = "the counts",
) -> str:
    """What a figure says beside what it should be, empty where the printed digits agree.

    Examples
    --------
    >>> differs(Decimal("0.43"), Fraction(13, 30)), differs(Decimal("0.5"), Fraction(13, 30))
    ('', '0.5 is printed, the counts give 0.4333')
    """
    if said is None or found is None:
        return ""
    shown = printed(said)
    if shown is None or not isfinite(shown.value):
        return "is no number"
    right = found if isinstance(found, Figure) else exact(found)
    if shown.near(right):
        return ""
    return f"{shown.value:g}{unit} is printed, {source} give {right.value:.4g}{unit}"


def named(found: Mapping[str, str]) -> list[str]:
    """Contradictions by key as sentences."""
    return [f"{key} {text}" for key, text in found.items() if text]


def rate(accepted: int | None, drafted: int | None, whole: int = 1) -> Fraction | None:
    """Accepted per drafted, as a share or (of 100) in percent."""
    return Fraction(whole * accepted, drafted) if drafted and accepted is not None else None


def of_group(group: Group, row: Mapping[str, object]) -> list[str]:
    """What is to be said of a group before what its counts lack: failures and contradictions."""
    return [*_failures(group, row), *group.remarks, *_of_requests(group.requests)]


def _failures(group: Group, row: Mapping[str, object]) -> Iterator[str]:
    failed, done = row.get("num_failed"), row.get("num_prompts")
    if not isinstance(failed, int) or not failed:
        return
    # Two answers to one question are two requests.
    good = [one for one in group.requests if one.status == "ok"]
    done = len(good) if group.requests else done
    of = f" of {count(failed + done)}" if isinstance(done, int) else ""
    plural = "" if failed == 1 and not of else "s"
    verb, whose = ("is", "its") if failed == 1 else ("are", "their")
    told = f"{count(failed)}{of} request{plural} failed and {verb} in no time"
    told += " or count" if group.counters is None else f"; the server's counters hold {whose} part"
    reasons = [one_line(one.reason) for one in group.requests if one.status != "ok" and one.reason]
    yield told + (f" ({_short(reasons[0])})" if reasons else "")


def _short(text: str) -> str:
    return text if len(text) <= REASON else text[: REASON - 1] + "…"


def _of_requests(requests: Sequence[Request]) -> Iterator[str]:
    """Contradictions of single requests: each figure once, with the first request that has it."""
    found: dict[str, list[str]] = {}
    for one in requests:
        for key, text in one.doubts.items():
            if text:
                found.setdefault(key, []).append(f"{one_line(one.prompt_id)[:40]}: {text}")
    for key, texts in found.items():
        yield f"{key} contradicts the counts of {count(len(texts), 'request')}; {texts[0]}"


def of_baseline(group: Group, plain: Group) -> Iterator[str]:
    """How the file of plain decoding is of other requests than that of the drafts."""
    own, other = _completed(group), _completed(plain)
    if own is not None and other is not None and own != other:
        yield f"the baseline completed {count(other, 'request')}, the drafts {count(own)}"
    for name, value in group.load.items():
        if name in plain.load and plain.load[name] != value:
            yield f"{name} is {value} here and {plain.load[name]} in the baseline"
    if group.requests and plain.requests:
        yield from _other_names(_good(group), _good(plain))
    elif own == other and _apart(group.prompt_tokens, plain.prompt_tokens):
        yield (
            f"other prompts: {count(group.prompt_tokens or 0, 'token')} here, "
            f"{count(plain.prompt_tokens or 0)} in the baseline"
        )


def _apart(own: int | None, other: int | None) -> bool:
    return own is not None and other is not None and own != other


def _other_names(own: Mapping[str, Request], plain: Mapping[str, Request]) -> Iterator[str]:
    both = [name for name in own if name in plain]
    if not both:
        if own and plain:
            yield (
                "no request of the baseline has the name of one here: the speedup, if any, is "
                "between the totals of two sets of requests"
            )
        return
    if len(both) < len(own) or len(both) < len(plain):
        yield (
            f"both files hold {count(len(both), 'request')}, of {count(len(own))} here and "
            f"{count(len(plain))} in the baseline: a paired speedup is of those"
        )
    key = "num_prompt_tokens"
    others = sum(_apart(own[one].counts.get(key), plain[one].counts.get(key)) for one in both)
    if others:
        yield (
            f"other prompts: of {count(len(both), 'request')} {count(others)} with another length "
            "in the baseline, so that nothing is paired and the speedup is one of totals"
        )


def _completed(group: Group) -> int | None:
    if group.requests:
        return len(_good(group))
    found = group.columns.get("num_prompts")
    return found if isinstance(found, int) else None


def _good(group: Group) -> dict[str, Request]:
    return {one.key: one for one in group.requests if one.status == "ok"}
