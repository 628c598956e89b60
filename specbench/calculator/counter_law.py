"""α, τ and the gap identity of one set of counters, as far as the counters determine them.

Position i is tested iff the i − 1 drafts before it were kept, so that the tests of all cycles are
the cycles plus those that kept 1, 2, … γ − 1 drafts; or, with the full accepts known, accepted +
cycles − full accepts. Where neither is known, α is only an inversion of τ: the i.i.d. reading.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from specbench.calculator.counter_checks import check_counts, check_tau, draft_length
from specbench.calculator.counter_file import Counters
from specbench.calculator.counter_values import Figure, exact
from specbench.closed_form import theory

Real = theory.Real

TOTALS = {"num_accepted": "num_accepted", "num_cycles": "num_cycles (num_drafts)"}
CUT = "cycles were cut short: no gap identity"
PER_POSITION = "accepted counts per position, num_full_accept or num_tested"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Counts as completed, estimates as determined; None where they are not."""

    counts: dict[str, int]
    fixed: bool = True
    """Every cycle drafted γ tokens, as far as the counts can tell."""
    whole: bool = True
    """No cycle was cut short inside its accepted run."""
    tau: Figure | None = None
    tau_exact: Fraction | None = None
    per_drafted: float | None = None
    alpha: Real | None = None
    alpha_range: Figure | None = None
    alpha_kind: str | None = None
    """`counts`, `positions`, `inverted` (from τ) or `given` (the file's own)."""
    full_share: Real | None = None
    """Share of cycles that kept all drafts."""
    remarks: list[str] = field(default_factory=list)

    @property
    def gamma(self) -> int | None:
        """Tokens drafted per cycle."""
        return self.counts.get("gamma")

    @property
    def closed_form(self) -> float | None:
        """τ by the closed form at α."""
        if self.alpha is None or self.gamma is None or not self.fixed:
            return None
        return theory.tau(self.alpha, self.gamma)

    @property
    def gap(self) -> float | None:
        """τ less its closed form; nothing where α was made from τ."""
        if self.tau is None or self.closed_form is None or self.alpha_kind == "inverted":
            return None
        return self.tau.value - self.closed_form

    @property
    def gap_identity(self) -> float | None:
        """The gap again, from the share of full accepts alone: α (α^γ − S) / (1 − α)."""
        if self.full_share is None or self.alpha is None or not self.gamma or self.gap is None:
            return None
        if self.alpha_kind == "given" or not self.whole:
            return None
        if self.alpha == 1:
            return 0.0
        excess = theory.full_accept(self.alpha, self.gamma) - float(self.full_share)
        return float(self.alpha) * excess / float(1 - self.alpha)


def acceptance(row: Counters) -> Acceptance:
    """What a row's counters determine, and what is missing for the rest.

    References
    ----------
    theory.md, sections 1 (inverse) and 2A (tests, identity).

    Examples
    --------
    >>> from specbench.calculator.counter_values import Place
    >>> place = Place("counters.csv", 2)
    >>> found = acceptance(Counters(place, counts={"num_cycles": 43, "gamma": 3}, kept=(4, 3, 3)))
    >>> found.alpha, found.alpha_kind
    (Fraction(1, 5), 'positions')
    """
    found = _full_accepts(_totals(_draft_length(Acceptance(dict(row.counts)), row), row), row)
    found = _per_drafted(_tau(found, row), row)
    return _cut(_alpha(found, row), row)


def _draft_length(found: Acceptance, row: Counters) -> Acceptance:
    """γ and cycles from each other, and whether all cycles drafted alike."""
    counts, remarks = dict(found.counts), []
    gamma, cycles, drafted = (counts.get(n) for n in ("gamma", "num_cycles", "num_drafted"))
    if gamma is None and draft_length(counts) is not None:
        gamma = draft_length(counts)
        remarks.append("gamma taken as num_drafted / num_cycles")
    elif gamma is None and (row.kept or row.shares):
        gamma = len(row.kept or row.shares)
        remarks.append("gamma taken as the number of positions")
    if cycles is None and gamma and drafted is not None and drafted % gamma == 0:
        cycles = drafted // gamma
        remarks.append("num_cycles taken as num_drafted / gamma")
    counts |= {"gamma": gamma} if gamma is not None else {}
    counts |= {"num_cycles": cycles} if cycles is not None else {}
    if remarks:
        check_counts(row.place, counts, {})
        check_tau(row.place, row.figures.get("tau"), gamma)
    alike = gamma is None or drafted is None or (cycles is not None and drafted == gamma * cycles)
    if not alike:
        remarks.append("draft lengths vary: num_drafted is not gamma × num_cycles")
    return replace(found, counts=counts, fixed=alike, remarks=remarks)


def _totals(found: Acceptance, row: Counters) -> Acceptance:
    """Drafted and accepted tokens, where other counts give them."""
    counts = dict(found.counts)
    gamma, cycles = counts.get("gamma"), counts.get("num_cycles")
    if gamma is not None and cycles is not None and found.fixed:
        counts.setdefault("num_drafted", gamma * cycles)
    if gamma is not None and row.kept and len(row.kept) >= gamma:
        counts.setdefault("num_accepted", sum(row.kept))
    return replace(found, counts=counts)


def _full_accepts(found: Acceptance, row: Counters) -> Acceptance:
    """Full accepts and tests from each other, where every cycle ran to its decision."""
    counts, gamma = dict(found.counts), found.gamma
    cycles, accepted = counts.get("num_cycles"), counts.get("num_accepted")
    if not gamma or not cycles or accepted is None or not found.fixed:
        return found
    full, tested = counts.get("num_full_accept"), counts.get("num_tested")
    if full is None and len(row.kept) >= gamma - 1 and (row.kept or gamma == 1):
        full = accepted - sum(row.kept[: gamma - 1])
    elif full is None and accepted in (0, gamma * cycles):
        full = accepted // gamma
    if full is None and tested is not None:
        full = accepted + cycles - tested
        if full * gamma > accepted:
            return replace(found, whole=False, remarks=[*found.remarks, CUT])
    if full is None:
        return found
    counts |= {"num_full_accept": full}
    counts.setdefault("num_tested", accepted + cycles - full)
    cut = counts["num_tested"] != accepted + cycles - full
    remarks = [CUT] if cut else []
    return replace(
        found,
        counts=counts,
        whole=not cut,
        full_share=Fraction(full, cycles),
        remarks=found.remarks + remarks,
    )


def _tau(found: Acceptance, row: Counters) -> Acceptance:
    """Tokens per cycle: from totals, from positions, as printed, or from accepted / drafted."""
    counts, gamma, printed = found.counts, found.gamma, row.figures.get("tau")
    cycles, accepted = counts.get("num_cycles"), counts.get("num_accepted")
    if cycles == 0:
        return replace(found, remarks=[*found.remarks, "no cycle was run"])
    if cycles and accepted is not None and (found.whole or printed is None):
        share = Fraction(accepted + cycles, cycles)
        return replace(found, tau=exact(share), tau_exact=share)
    if gamma and len(row.shares) == gamma:
        return replace(found, tau=_sum(row.shares).plus(exact(1)))
    if printed is not None:
        return replace(found, tau=printed)
    rate = row.figures.get("accepted_per_drafted")
    if rate is not None and gamma and found.fixed:
        return replace(found, tau=rate.times(gamma).plus(exact(1)))
    return replace(found, tau=exact(1)) if gamma == 0 else found


def _per_drafted(found: Acceptance, row: Counters) -> Acceptance:
    drafted, accepted = found.counts.get("num_drafted"), found.counts.get("num_accepted")
    printed = row.figures.get("accepted_per_drafted")
    if drafted and accepted is not None:
        return replace(found, per_drafted=accepted / drafted)
    if printed is not None:
        return replace(found, per_drafted=printed.value)
    if found.tau is not None and found.gamma and found.fixed:
        return replace(found, per_drafted=(found.tau.value - 1) / found.gamma)
    return found


def _alpha(found: Acceptance, row: Counters) -> Acceptance:
    """α by the best ground there is: tests counted, positions, the file's own, τ inverted."""
    tested, accepted = found.counts.get("num_tested"), found.counts.get("num_accepted")
    if tested and accepted is not None:
        kind = "positions" if row.kept and "num_tested" not in row.counts else "counts"
        return _with_alpha(found, Fraction(accepted, tested), kind)
    if found.gamma == 0 or tested == 0 or found.counts.get("num_cycles") == 0:
        return found
    others = (found.gamma or 0) - 1
    if found.tau is not None and found.fixed and row.shares and 0 <= others <= len(row.shares):
        return _from_shares(found, row.shares[:others], found.tau)
    given = row.figures.get("alpha")
    if given is not None and _is_per_drafted(found, given):
        told = f"alpha {given.value:g} is accepted / drafted, which is not alpha"
        found = replace(found, remarks=[*found.remarks, told])
    elif given is not None:
        return replace(found, alpha=given.value, alpha_range=given, alpha_kind="given")
    return _inverted(found)


def _cut(found: Acceptance, row: Counters) -> Acceptance:
    """Name the positions that a list lacks; a total makes up for the last one."""
    listed, gamma = len(row.kept or row.shares), found.gamma
    if not listed or not gamma or not found.fixed or found.counts.get("num_cycles") == 0:
        return found
    total = "num_accepted" in found.counts if row.kept else found.tau is not None
    first, last = listed + 1, gamma - total
    if last < first or found.alpha_kind in ("counts", "positions"):
        return found
    which = f"position {first} is" if first == last else f"positions {first} to {last} are"
    told = f"{which} missing ({listed} given, gamma is {gamma}): no alpha from positions"
    return replace(found, remarks=[*found.remarks, told])


def _with_alpha(found: Acceptance, alpha: Fraction, kind: str) -> Acceptance:
    return replace(found, alpha=alpha, alpha_range=exact(alpha), alpha_kind=kind)


def _from_shares(found: Acceptance, shares: tuple[Figure, ...], tau: Figure) -> Acceptance:
    """Accepted per cycle over tests per cycle; the last position is what the others leave."""
    kept = Figure(tau.value - 1, tau.low - 1, tau.high - 1)
    others = _sum(shares)
    tests, last = others.plus(exact(1)), shares[-1] if shares else exact(1)
    if kept.low > others.high + last.high or kept.high < others.low:
        told = "positions do not add up to tau: no alpha from positions"
        return _inverted(replace(found, remarks=[*found.remarks, told]))
    alpha = kept.value / tests.value
    span = Figure(alpha, max(kept.low, 0.0) / tests.high, min(kept.high / tests.low, 1.0))
    return replace(
        found,
        alpha=min(alpha, 1.0),
        alpha_range=span,
        alpha_kind="positions",
        full_share=kept.value - others.value if alpha <= 1 else None,
    )


def _inverted(found: Acceptance) -> Acceptance:
    gamma, tau = found.gamma, found.tau
    if tau is None or not gamma or not found.fixed:
        return found

    def alpha(tokens: Real) -> float:
        return theory.alpha_from_tau(min(max(tokens, 1), gamma + 1), gamma)

    best = alpha(tau.value if found.tau_exact is None else found.tau_exact)
    span = Figure(best, alpha(tau.low), alpha(tau.high))
    return replace(found, alpha=best, alpha_range=span, alpha_kind="inverted")


def _is_per_drafted(found: Acceptance, given: Figure) -> bool:
    """Whether a printed α is the ratio that servers call acceptance rate."""
    if found.per_drafted is None or not found.gamma or found.gamma == 1 or found.tau is None:
        return False
    alike = given.near(exact(found.per_drafted))
    return alike and 0 < found.per_drafted < 1 and not given.near(_range(_inverted(found)))


def _range(found: Acceptance) -> Figure:
    return found.alpha_range or exact(0)


def _sum(figures: tuple[Figure, ...]) -> Figure:
    total = exact(0)
    for one in figures:
        total = total.plus(one)
    return total
