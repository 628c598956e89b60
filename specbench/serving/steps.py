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
    in_order: tuple[tuple[int, int], ...] | None = None
    """Tokens drafted and drafts kept of each step with a draft, as they came."""


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


def aligned(
    counted: Counted,
    sizes: Sequence[int],
    gamma: int,
    *,
    ended_by_eos: bool,
    own_length: bool,
) -> tuple[Step, ...] | None:
    """The steps of a request from its steps with a draft, and the tokens that came together.

    vLLM tells the steps with a draft in order, kept drafts as decided, and sends the tokens of each
    step in an event of their own: steps without a draft are those that are left over, and the last
    event shows how much of the last step was delivered.

    Parameters
    ----------
    sizes
        Tokens of each event, the prompt pass's first.

    Returns
    -------
        The steps, those without a draft in front, as their places are not told; None where events
        were sent together, so that the end of the last step is not known.

    Examples
    --------
    Three drafts of 3 tokens, of which 1, 3 and 3 were kept, and of the last step 2 tokens came:

    >>> told = Counted(in_order=((3, 1), (3, 3), (3, 3)))
    >>> steps = aligned(told, (1, 1, 2, 4, 1, 2), 3, ended_by_eos=False, own_length=True)
    >>> [(s.drafted, s.kept, s.emitted) for s in steps]
    [(0, 0, 1), (0, 0, 1), (3, 1, 2), (3, 3, 4), (3, 3, 2)]
    """
    drafts = counted.in_order
    if drafts is None or not sizes or sizes[0] != 1 or min(sizes) < 1:
        return None
    if any(not 0 <= kept <= drafted for drafted, kept in drafts):
        raise Contradiction("more drafts kept in a step than were drafted there")
    if any(drafted > gamma for drafted, _ in drafts):
        raise Contradiction(f"steps of more drafts than gamma {gamma}")
    steps = sizes[1:]
    came = [size for size in steps if size > 1]
    whole = [kept + 1 for _, kept in drafts if kept]
    over = 0
    if came != whole:
        last = steps[-1] if steps else 0
        cut = [*whole[:-1], *([last] if last > 1 else [])]
        if not whole or not drafts[-1][1] or came != cut or not 0 < last < whole[-1]:
            return None
        over = whole[-1] - last
    undrafted = len(steps) - len(drafts)
    if undrafted < 0:
        return None
    runs = [(0, 0)] * undrafted + list(drafts)
    return _closed(runs, over, gamma, ended_by_eos, own_length)


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
