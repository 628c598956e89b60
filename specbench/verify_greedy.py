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
from torch import Tensor

from specbench import loading
from specbench.engines.failures import is_out_of_memory
from specbench.engines.selftest import HALF_TV_LIMIT, LIMITS
from specbench.engines.torch_engine import TorchEngine
from specbench.law_tests import POWER, Measured
from specbench.lm import CausalLM
from specbench.sampling import first_max, total_variation


@dataclass(frozen=True, slots=True)
class Step:
    """One position of a text by one-token passes, and beside it by a block."""

    index: int
    single: Tensor
    """Logits (V,)."""
    block: Tensor


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

    def add(
        self,
        prompt_id: str,
        prompt: Sequence[int],
        text: Sequence[int],
        *,
        gamma: int,
        rows: int = 1,
    ) -> None:
        """Check a text that was written at a γ, in a batch of so many rows."""
        same = True
        for step in steps(self.target, prompt, text, gamma + 1, rows):
            self.rounding.add(step)
            top, second = step.single.topk(2).values.tolist()
            own = float(step.single[text[step.index]])
            self.gaps.append(top - own)
            self.seconds.append(top - second)
            best = int(first_max(step.single)[1])
            if same and best != text[step.index]:
                same = False
                context = (*prompt, *text[: step.index])
                ids = (text[step.index], best)
                found = Difference(prompt_id, step.index, ids, (own, top), context)
                self.differences.append(found)

    @property
    def delta(self) -> float:
        """See `Rounding`."""
        return self.rounding.delta

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


def steps(
    lm: CausalLM, prompt: Sequence[int], text: Sequence[int], width: int, rows: int
) -> Iterator[Step]:
    """Every position of a text, one token at a time and in blocks of `width`.

    The block is fed to `rows` rows alike, as in a batch: that is a shape of its own.
    """
    if not text:
        return
    start, end = len(prompt), len(prompt) + len(text)
    tokens = torch.tensor([[*prompt, *text]], device=lm.device)
    many = tokens.expand(rows, -1)
    with torch.inference_mode():
        alone, batch = lm.session(1, end), lm.session(rows, end)
        alone.prefill(tokens, start - 1)
        batch.prefill(many, start - 1)
        for at in range(start, end, width):
            size = min(width, end - at)
            block = batch.feed(many, at - 1, size, at + size - 1, keep=size)[0]
            for place in range(size):
                single = alone.feed(tokens, at + place - 1, 1, at + place, keep=1)[0, 0]
                yield Step(at + place - start, single, block[place])


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
        *_, step = steps(lm, ids[:split], ids[split:], max(1, size), 1)
    except (RuntimeError, MemoryError) as err:
        if not is_out_of_memory(err):
            raise
        return one
    found = (int(step.single.argmax()), int(step.block.argmax()))
    return Difference(one.prompt_id, one.index, one.ids, one.logits, one.context, finer, found)
