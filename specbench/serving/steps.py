"""Steps of a served request: from cumulative counts beside its tokens, or from a histogram.

A server takes the first token from the prompt pass. Every further target pass is a step that emits
the drafts it kept and one token more; a step without a draft emits one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench.records import Censor

Histogram = Mapping[tuple[int, int], int]
"""Steps by tokens drafted and drafts kept."""


class Contradiction(ValueError):
    """Counts that no run of steps can give."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Counts of a request when some of its tokens had come."""

    tokens: int
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Step:
    """One target pass behind the prompt pass."""

    drafted: int
    kept: int
    """As decided; up to an accepted EOS, whatever stands behind it."""
    emitted: int
    censor: Censor = ""

    @property
    def tested(self) -> int:
        """Drafted positions whose accept decision was taken."""
        return self.kept if self.censor == "eos" else min(self.kept + 1, self.drafted)


@dataclass(frozen=True, slots=True)
class Counted:
    """Totals of one request that its server gives; None is what it does not say."""

    drafted: int | None = None
    accepted: int | None = None
    drafts: int | None = None
    """Steps with a draft."""
    cycles: int | None = None
    """All steps, where the server counts them."""
    steps: Histogram | None = None
    """Steps with a draft."""
    positions: tuple[int, ...] = ()
    """Steps that kept the first 1, 2, … drafts."""


def traced(
    seen: Sequence[Seen], tokens: int, gamma: int, *, ended_by_eos: bool, own_length: bool
) -> tuple[Step, ...] | None:
    """The steps of a request from cumulative counts that came with its tokens.

    A server that holds back half a character sends several tokens at once; the steps are still
    known as long as none is wholly hidden.

    Parameters
    ----------
    seen
        In order of tokens; all tokens of a step carry the counts after it.
    tokens
        Of the whole request, the one of the prompt pass included.
    gamma
        The longest draft.
    own_length
        Whether a draft may be shorter than γ of its own accord. If not, a shorter one was cut by
        the request's end.

    Returns
    -------
        The steps, None if one of them is hidden.

    Examples
    --------
    >>> steps = traced([Seen(1, 0, 0), Seen(2, 2, 1), Seen(3, 2, 1), Seen(4, 4, 1)], 4, 2,
    ...                ended_by_eos=False, own_length=False)
    >>> [(s.drafted, s.kept, s.emitted) for s in steps]
    [(2, 1, 2), (2, 0, 1)]
    """
    runs: list[tuple[int, int]] = []
    drafted = accepted = 0
    end = 1
    for one in seen:
        new = (one.drafted - drafted, one.accepted - accepted)
        if min(new) < 0 or new[1] > new[0]:
            raise Contradiction("counts of drafts that fall, or more kept than drafted")
        drafted, accepted = one.drafted, one.accepted
        if new[0]:
            if new[0] > gamma or not end < one.tokens <= end + new[1] + 1:
                return None
            runs.append(new)
            end += new[1] + 1
        elif one.tokens > end:
            runs += [(0, 0)] * (one.tokens - end)
            end = one.tokens
    if end < tokens:
        return None
    return _closed(runs, end - tokens, gamma, ended_by_eos, own_length)


def _closed(
    runs: list[tuple[int, int]], over: int, gamma: int, eos: bool, own_length: bool
) -> tuple[Step, ...]:
    """Steps with what ended them; `over` tokens of the last one were not delivered."""
    out = []
    for number, (drafted, kept) in enumerate(runs, 1):
        short: Censor = "context" if drafted < gamma and not own_length else ""
        emitted = kept + 1
        if number == len(runs) and over:
            emitted -= over
            if emitted < 1:
                raise Contradiction("a last step that delivered nothing")
            if eos:
                # What stands behind an EOS was never decided for this text.
                kept = emitted
                short = "eos" if kept < drafted else short
        out.append(Step(drafted, kept, emitted, short))
    return tuple(out)
