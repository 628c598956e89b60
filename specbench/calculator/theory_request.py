"""What `specbench theory` was asked: flags as typed, checked, and made exact."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from specbench.errors import UsageError
from specbench.settings.gamma import parse_gamma, split_list

LARGEST_COST = 10**9
"""c and 1/v beyond it are typing errors, and would end in an infinite speedup."""

DEFAULT_GAMMA = "1-8"
ALPHA_HINT = "0.8 or 4/5 or 0.7,0.8,0.9 (a fraction, not percent)"

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?|-?[0-9]+/[0-9]+")


@dataclass(frozen=True, slots=True)
class Given:
    """A number and the text that it was given by."""

    value: Fraction
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """One question: `alphas`, or `tau`, or `accepted` counts with draft lengths; or `counters`."""

    gammas: tuple[int, ...]
    alphas: tuple[Given, ...] = ()
    tau: Given | None = None
    accepted: tuple[int, ...] = ()
    counters: str | None = None
    """A file of counters, in which γ, c and v stand in where a row has none."""
    cost_ratio: float | None = None
    verify_ratio: float = 1.0
    verify_given: bool = False

    @property
    def verify_alone(self) -> bool:
        """A verify ratio came without the cost ratio that a speedup needs."""
        return self.verify_given and self.cost_ratio is None and self.counters is None


def parse_request(
    alpha: str | None = None,
    one_minus_alpha: str | None = None,
    gamma: str | None = None,
    cost_ratio: str | None = None,
    verify_ratio: str | None = None,
    tau: str | None = None,
    accepted: str | None = None,
    counters: str | None = None,
) -> Request:
    """Check the flags of `specbench theory`; the first fault is raised as a `UsageError`."""
    source = _only_one(
        {
            "--alpha": alpha,
            "--one-minus-alpha": one_minus_alpha,
            "--tau": tau,
            "--accepted": accepted,
            "--counters": counters,
        }
    )
    if gamma is None and source in ("--tau", "--accepted"):
        raise UsageError(f"{source} needs --gamma", hint=f"specbench theory {source} … --gamma 4")
    gammas = parse_gamma(DEFAULT_GAMMA if gamma is None else gamma)
    if counters is not None:
        gammas = _one_gamma(gamma, gammas)
    return Request(
        gammas,
        alphas=_alphas(alpha, one_minus_alpha),
        tau=None if tau is None else _tau(tau, gammas),
        accepted=() if accepted is None else _accepted(accepted, gammas),
        counters=counters,
        cost_ratio=None if cost_ratio is None else _cost(cost_ratio),
        verify_ratio=1.0 if verify_ratio is None else _verify(verify_ratio),
        verify_given=verify_ratio is not None,
    )


def _one_gamma(given: str | None, gammas: tuple[int, ...]) -> tuple[int, ...]:
    """The γ that stands in for rows without one; none where no flag was given."""
    if given is not None and len(gammas) > 1:
        raise UsageError(f"--counters needs one --gamma, not {len(gammas)}", hint="--gamma 4")
    return () if given is None else gammas


def _only_one(given: dict[str, str | None]) -> str:
    flags = [flag for flag, text in given.items() if text is not None]
    if not flags:
        raise UsageError(
            "theory needs --alpha, --one-minus-alpha, --tau, --accepted or --counters",
            hint="specbench theory --alpha 0.8 --gamma 1-8 --cost-ratio 0.05",
        )
    if len(flags) > 1:
        raise UsageError(f"{' and '.join(flags)} cannot be given together", hint="one of them")
    return flags[0]


def _number(flag: str, text: str, allowed: str, hint: str) -> Fraction:
    stripped = text.strip()
    try:
        if _NUMBER.fullmatch(stripped):
            return Fraction(stripped)
    except (ValueError, ZeroDivisionError):
        pass
    raise UsageError(f'{flag} "{text}": not a finite number; allowed is {allowed}', hint=hint)


def _alphas(alpha: str | None, one_minus_alpha: str | None) -> tuple[Given, ...]:
    if alpha is not None:
        return tuple(
            Given(_probability("--alpha", item), item)
            for item in split_list(alpha, "--alpha", ALPHA_HINT)
        )
    if one_minus_alpha is None:
        return ()
    flag = "--one-minus-alpha"
    items = split_list(one_minus_alpha, flag, "1e-6 or 1/1000")
    return tuple(Given(1 - _probability(flag, item), f"1 − {item}") for item in items)


def _probability(flag: str, text: str) -> Fraction:
    value = _number(flag, text, "from 0 to 1", ALPHA_HINT)
    if not 0 <= value <= 1:
        raise UsageError(f'{flag} "{text}": allowed is from 0 to 1', hint=ALPHA_HINT)
    return value


def _cost(text: str) -> float:
    flag, allowed, hint = (
        "--cost-ratio",
        "0 or more, up to 1e9",
        "draft step / target step, as 0.05",
    )
    value = _number(flag, text, allowed, hint)
    if not 0 <= value <= LARGEST_COST:
        raise UsageError(f'{flag} "{text}": allowed is {allowed}', hint=hint)
    return float(value)


def _verify(text: str) -> float:
    flag, allowed, hint = (
        "--verify-ratio",
        "above 0, 1e-9 to 1e9",
        "verify pass / target step, as 1.1",
    )
    value = _number(flag, text, allowed, hint)
    if not Fraction(1, LARGEST_COST) <= value <= LARGEST_COST:
        raise UsageError(f'{flag} "{text}": allowed is {allowed}', hint=hint)
    return float(value)


def _tau(text: str, gammas: tuple[int, ...]) -> Given:
    if gammas[0] == 0:
        raise UsageError(
            "--gamma 0 drafts nothing, so --tau says nothing about α", hint="--gamma 4"
        )
    top = gammas[0] + 1
    allowed = f"from 1 to γ + 1, here {top}"
    hint = "tokens per cycle with the correction or bonus: mean accepted + 1"
    value = _number("--tau", text, allowed, hint)
    if not 1 <= value <= top:
        raise UsageError(f'--tau "{text}": allowed is {allowed}', hint=hint)
    return Given(value, text.strip())


def _accepted(text: str, gammas: tuple[int, ...]) -> tuple[int, ...]:
    flag = "--accepted"
    if len(gammas) > 1:
        raise UsageError(f"{flag} needs one --gamma, not {len(gammas)}", hint="--gamma 4")
    counts = []
    for item in split_list(text, flag, "4,0,2"):
        if not re.fullmatch(r"[0-9]{1,4}", item) or int(item) > gammas[0]:
            raise UsageError(
                f'{flag} "{text}": "{item}" is not a whole number from 0 to γ, here {gammas[0]}',
                hint="drafts kept in each cycle, as 4,0,2",
            )
        counts.append(int(item))
    return tuple(counts)
