"""Greedy texts against plain decoding, and how much of a difference is rounding.

Plain decoding is passes of one token that take the highest logit, so such passes along a text say
where it leaves the plain one. Passes of one token and of a block give logits that differ in their
last digits. δ is twice the largest such difference, measured along the very texts: two logits
closer than that may change places without any fault. Theory.md, section 7, V4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from specbench.engines.failures import is_out_of_memory
from specbench.engines.selftest import HALF_TV_LIMIT, LIMITS
from specbench.engines.torch_engine import TorchEngine
from specbench.laws.law_tests import POWER, Measured
from specbench.models import loading
from specbench.models.lm import CausalLM
from specbench.models.sampling import first_max, total_variation
from specbench.records import Generation
from specbench.verification.verify_passes import Step, steps


@dataclass(slots=True)
class Rounding:
    """How far one-token and block passes of a target are apart."""

    largest: float = 0.0
    """Of all logits."""
    tv: float = 0.0
    """Largest total variation at temperature 1."""
    high: float = 0.0
    """Largest logit."""
    squares: float = 0.0
    size: int = 0

    def add(self, step: Step) -> None:
        """Take a position in."""
        off = (step.block - step.single).double()
        p = step.single.double().softmax(dim=-1)
        self.largest = max(self.largest, float(off.abs().max()))
        self.high = max(self.high, float(step.single.abs().max()))
        self.tv = max(self.tv, total_variation(step.block, step.single))
        centred = off - (p * off).sum()
        self.squares += float((p * centred**2).sum())
        self.size += 1

    def merge(self, other: Rounding) -> None:
        """Take in what was measured along other texts."""
        self.largest = max(self.largest, other.largest)
        self.tv = max(self.tv, other.tv)
        self.high = max(self.high, other.high)
        self.squares += other.squares
        self.size += other.size

    @property
    def delta(self) -> float:
        """How far the difference of two logits can move."""
        return 2 * self.largest

    @property
    def drift(self) -> float:
        """Root mean square by which a logit moves, weighed by its probability."""
        return math.sqrt(self.squares / self.size) if self.size else 0.0

    def test(self, dtype: torch.dtype) -> Measured:
        """Whether it is no more than rounding: else it would excuse a fault of the cache."""
        half = dtype in (torch.bfloat16, torch.float16)
        limit = HALF_TV_LIMIT if half else LIMITS[dtype] * max(1.0, self.high / 10)
        found = self.tv if half else self.largest
        return Measured(
            "greedy",
            "one-token and block passes",
            found,
            self.size,
            wrong=not found <= limit,
            limit=limit,
            reach=lambda _: None,
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token in which a text differs from plain decoding."""

    prompt_id: str
    index: int
    ids: tuple[int, int]
    """Of the text, and of plain decoding."""
    logits: tuple[float, float]
    context: tuple[int, ...] = field(repr=False)
    dtype: str = ""
    """In which it was checked again; empty if it was not."""
    finer: tuple[int, int] | None = None
    """What one-token and block passes say in that dtype."""

    @property
    def gap(self) -> float:
        """Between both logits."""
        return abs(self.logits[0] - self.logits[1])


@dataclass(slots=True)
class GreedyCheck:
    """Greedy texts of one pair, held against the target's own passes and its plain text."""

    target: CausalLM
    rounding: Rounding = field(default_factory=Rounding)
    gaps: list[float] = field(default_factory=list)
    """By how much each emitted token is below the top."""
    seconds: list[float] = field(default_factory=list)
    """By how much the second is below the top."""
    differences: list[Difference] = field(default_factory=list)
    floor: float = 0.0
    """Least δ: what is known beforehand of how far two logits of the writer can move."""

    def add(self, texts: Sequence[Generation], *, gamma: int, rows: int = 1) -> None:
        """Check texts that were written at a γ, in batches of so many rows; all of them or none."""
        pairs = [(one.prompt_token_ids, one.token_ids) for one in texts]
        part = GreedyCheck(self.target)
        found: dict[int, Difference] = {}
        for step in steps(self.target, pairs, gamma + 1, rows):
            part._take(step, texts[step.text], found)
        self.rounding.merge(part.rounding)
        self.gaps += part.gaps
        self.seconds += part.seconds
        self.differences += [found[text] for text in sorted(found)]

    def _take(self, step: Step, one: Generation, found: dict[int, Difference]) -> None:
        """One position; the first of a text that differs goes into `found`."""
        self.rounding.add(step)
        token = one.token_ids[step.index]
        top, second = step.single.topk(2).values.tolist()
        own = float(step.single[token])
        self.gaps.append(top - own)
        self.seconds.append(top - second)
        best = int(first_max(step.single)[1])
        if best != token and step.text not in found:
            context = (*one.prompt_token_ids, *one.token_ids[: step.index])
            ids, logits = (token, best), (own, top)
            found[step.text] = Difference(one.prompt_id, step.index, ids, logits, context)

    @property
    def delta(self) -> float:
        """See `Rounding`."""
        return max(self.rounding.delta, self.floor)

    @property
    def near_ties(self) -> int:
        """Positions at which the two highest logits may change places."""
        return sum(gap <= self.delta for gap in self.seconds)

    def tests(self) -> Iterator[Measured]:
        """None if there is no token."""
        if not self.gaps:
            return
        yield self.rounding.test(self.target.dtype)
        worst = max(self.gaps)
        # A fault that takes a lower token with probability f is missed with (1 − f)^n.
        least = 1 - (1 - POWER) ** (1 / len(self.gaps))
        yield Measured(
            "greedy",
            "every token within δ of the top",
            worst,
            len(self.gaps),
            wrong=not worst <= self.delta,
            limit=self.delta,
            reach=lambda _: least,
        )
        wrong = sum(not one.gap <= self.delta for one in self.differences)
        yield Measured(
            "greedy",
            "same text up to a near tie",
            wrong,
            len(self.gaps),
            wrong=wrong > 0,
            limit=0.0,
            rounded=bool(self.differences),
            reach=lambda _: least,
        )


def rechecked(engine: TorchEngine, one: Difference, gammas: Sequence[int]) -> Difference:
    """The same difference in a finer dtype; as it was where the target does not fit in it."""
    finer = "float64" if engine.target.dtype == torch.float32 else "float32"
    if engine.target.dtype == torch.float64:
        return one
    settings = engine.settings
    try:
        model = loading.load_model(
            loading.resolve(settings.target, "--target"),
            device=engine.device,
            dtype=finer,
            trust_remote_code=settings.trust_remote_code,
        )
        lm = CausalLM(model, settings.target_label)
        # A text of one token more, so that the position in question is there.
        size = min(max(gammas) + 1, len(one.context) - 1)
        split = len(one.context) + 1 - max(1, size)
        ids = (*one.context, 0)
        *_, step = steps(lm, [(ids[:split], ids[split:])], max(1, size), 1)
    except (RuntimeError, MemoryError) as err:
        if not is_out_of_memory(err):
            raise
        return one
    found = (int(step.single.argmax()), int(step.block.argmax()))
    return Difference(one.prompt_id, one.index, one.ids, one.logits, one.context, finer, found)
