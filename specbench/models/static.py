"""Sessions of fixed shapes: what a CUDA graph or a compiled forward needs.

A step of one width reads ids and positions from buffers at fixed addresses, sees the whole slab
under a mask, and writes its logits into a buffer of its own. All that changes from call to call is
in those two buffers, so that the step can be captured once and replayed. Slabs are kept from one
text to the next, since a captured step knows its addresses.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any, Protocol

import torch
from torch import Tensor

from specbench.errors import PairRefused
from specbench.models.lm import CausalLM, Session
from specbench.settings.forward_modes import WIDEST

ROOM = 64
"""Slots come in multiples, so that texts of unlike length share a slab."""

Forward = Callable[..., Tensor]
Run = Callable[[], None]


class Runner(Protocol):
    """How steps of fixed shapes are carried out."""

    seconds: float
    """Spent on capturing or compiling so far."""

    def forward(self, lm: CausalLM) -> Forward:
        """What stands for `lm.forward` inside a step."""

    def capture(self, run: Run) -> Run:
        """A step that is ready to be replayed, given one that works as it is."""


@dataclass(slots=True)
class Eager:
    """Steps as they are: fixed shapes alone, to test and to compare with."""

    seconds: float = 0.0

    def forward(self, lm: CausalLM) -> Forward:
        """The forward itself."""
        return lm.forward

    def capture(self, run: Run) -> Run:
        """Nothing to prepare."""
        return run


@dataclass(slots=True)
class Compiled:
    """Forwards through `torch.compile` at fixed shapes; one compilation per step.

    Compilations are kept by a function's code, a few at most, and what goes beyond them would run
    uncompiled without a word. So each step has a function of its own, and one that has to be
    compiled too often is an error.
    """

    seconds: float = 0.0
    steps: int = 0
    """Compiled so far."""

    def forward(self, lm: CausalLM) -> Forward:
        """A compiled forward of a model, for the shapes of one step."""
        import torch._dynamo

        torch._dynamo.config.fail_on_recompile_limit_hit = True
        self.steps += 1
        plain = type(lm).forward
        code = plain.__code__.replace(co_name=f"forward_{self.steps}")
        own = FunctionType(code, plain.__globals__, code.co_name, plain.__defaults__)
        own.__kwdefaults__ = plain.__kwdefaults__
        with _silent():
            compiled: Forward = torch.compile(MethodType(own, lm), dynamic=False)
        return compiled

    def capture(self, run: Run) -> Run:
        """Compile by running twice: the second run uses what the first one made."""
        start = time.perf_counter()
        try:
            with _silent():
                run()
                run()
        except Exception as err:  # a compiler may raise anything
            said = str(err).strip().splitlines() or [type(err).__name__]
            raise PairRefused(
                "--forward compile: the model cannot be compiled here",
                where=said[0],
                hint="a C++ compiler on the PATH (g++), or --forward eager",
            ) from err
        self.seconds += time.perf_counter() - start
        return run


@contextmanager
def _silent() -> Iterator[None]:
    """The compiler's own imports warn of things that nobody here can change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(slots=True)
class CudaGraphs:
    """One CUDA graph per step, all in one pool. Inputs and outputs live outside of it.

    cuda.md's recipe: three runs on a side stream build workspaces and load kernels, then the
    capture; no other work may run on the device meanwhile.
    """

    seconds: float = 0.0
    inner: Runner = field(default_factory=Eager)
    _pool: Any = None

    def forward(self, lm: CausalLM) -> Forward:
        """As the inner runner has it: itself, or compiled."""
        return self.inner.forward(lm)

    def capture(self, run: Run) -> Run:
        """Warm up on a side stream, then capture."""
        start = time.perf_counter()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            run()
        self._pool = self._pool or graph.pool()
        self.seconds += time.perf_counter() - start
        return graph.replay


class StaticSession(Session):
    """A KV state whose narrow forwards have fixed shapes."""

    def __init__(self, lm: CausalLM, rows: int, capacity: int, runner: Runner) -> None:
        super().__init__(lm, rows, capacity)
        self.most = rows
        self._runner = runner
        self._steps: dict[tuple[int, int, int], _Step] = {}
        # Slabs take their sizes from a first forward, which must not be a captured one.
        first = torch.zeros(rows, 1, dtype=torch.int64, device=lm.device)
        super().feed(first, 0, 1, 1, keep=1)

    def begin(self, rows: int) -> None:
        """Start another batch; what older texts left is overwritten before it is seen."""
        self.rows = rows
        self.limit_ids = False

    def feed(
        self, tokens: Tensor, start: int | Tensor, width: int, visible: int, keep: int
    ) -> Tensor:
        """As a plain session; the logits are overwritten by the next feed of this width."""
        if width > WIDEST:
            return super().feed(tokens, start, width, visible, keep)
        ids, positions = self._where(tokens, start, width)
        if self.limit_ids:
            ids = ids.clamp(max=self.lm.vocab_size - 1)
        return self._step(self.rows, width, keep)(ids, positions)[: self.rows]

    def prefill(self, tokens: Tensor, length: int) -> None:
        """Feed tokens[:, :length] in chunks as they come, whatever their width."""
        plain = super().feed
        for start, width in self.chunks(length):
            plain(tokens, start, width, start + width, keep=1)

    def prepare(self, widths: Sequence[int]) -> None:
        """Capture steps before they are first wanted, in the middle of a timed text."""
        for width in widths:
            self._step(self.rows, width, 1)

    def _step(self, rows: int, width: int, keep: int) -> _Step:
        """The step for so many rows. All smaller ones come with it, before any clock runs."""
        most = bucket(rows, self.most)
        key = (most, width, keep)
        if key not in self._steps:
            for size in _buckets(self.most):
                step = _Step(self, size, width, keep, self._runner)
                self._steps[size, width, keep] = step
        return self._steps[key]


def bucket(rows: int, most: int) -> int:
    """Rows of the smallest step that holds so many: a power of two, or all."""
    return min(most, 1 << (rows - 1).bit_length())


def _buckets(most: int) -> list[int]:
    """All sizes of steps, the largest first: what a graph's pool wants."""
    return sorted({bucket(rows, most) for rows in range(1, most + 1)}, reverse=True)


class _Step:
    """One forward of fixed shapes over the first rows of a session."""

    def __init__(
        self, session: StaticSession, rows: int, width: int, keep: int, runner: Runner
    ) -> None:
        lm = session.lm
        self._session, self._rows, self._keep = session, rows, keep
        self._forward = runner.forward(lm)
        self._ids = torch.zeros(rows, width, dtype=torch.int64, device=lm.device)
        # Capturing runs the step in the middle of a text: it may write only where nothing is yet.
        last = torch.arange(session.capacity - width, session.capacity, device=lm.device)
        self._positions = last.repeat(rows, 1)
        base = torch.arange(rows, device=lm.device).unsqueeze(-1)
        self._base = base * session.capacity
        wide = torch.float64 if lm.dtype == torch.float64 else torch.float32
        shape = (rows, keep, lm.vocab_size)
        self._logits = torch.zeros(shape, dtype=wide, device=lm.device)
        self._replay = runner.capture(self._run)

    def __call__(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Logits of ids (n, width) at positions (n or 1, width), n at most the step's rows.

        Rows beyond n are dead: they read and write their own slots, which nobody else sees.
        """
        self._ids[: ids.shape[0]] = ids
        self._positions[: ids.shape[0]] = positions
        self._replay()
        return self._logits

    def _run(self) -> None:
        session, lm = self._session, self._session.lm
        slots = (self._positions + self._base).reshape(-1)
        session.cache.set_plan(slots, session.capacity, self._rows)
        mask = lm.mask(self._positions, session.capacity)
        at = self._positions
        if session.capacity > lm.context:
            at = at.clamp(max=lm.context - 1)
        self._logits.copy_(self._forward(self._ids, at, mask, session.cache, self._keep))


class Pool:
    """The sessions of one model, kept by who uses them: several may be in use at once."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._least = 0
        self._kept: dict[str, StaticSession] = {}

    def reserve(self, capacity: int) -> None:
        """Make no session smaller than this, so that none has to be made anew in a timed run."""
        self._least = max(self._least, capacity)

    def __call__(self, lm: CausalLM, rows: int, capacity: int, owner: str) -> Session:
        """The owner's session, made anew where it is too small."""
        found = self._kept.get(owner)
        if found is None or found.most < rows or found.capacity < capacity:
            slots = max(capacity, self._least, found.capacity if found else 0)
            most = max(rows, found.most if found else 0)
            found = StaticSession(lm, most, -(-slots // ROOM) * ROOM, self.runner)
            self._kept[owner] = found
        found.begin(rows)
        return found
