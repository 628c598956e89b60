"""How a training is shown: a live line on a terminal, lines in a log."""

from __future__ import annotations

import math
import time

from rich.console import Group
from rich.live import Live
from rich.table import Table

from specbench.measure.live import clock
from specbench.measure.progress import BAR, DRAW_EVERY_S, LOG_EVERY_S, Progress
from specbench.training.store import Row
from specbench.training.train import Training, parameters
from specbench.wording import count, fixed

TEXTS = {"samples": "the target's own samples", "given": "given texts"}


class TrainView(Progress):
    """Steps, the loss and the held-out α."""

    _steps = _first = _step = 0
    _began = _loss = 0.0
    _limit = math.inf

    def begin_training(self, training: Training) -> None:
        """Say what is trained, on what, and where it stands."""
        plan, position = training.plan, training.position
        self.say(
            f"target   {plan.target}    {plan.kind} draft, {parameters(training.student):,} "
            f"parameters, {plan.optimizer}"
        )
        self.say(
            f"text     {TEXTS[plan.text]}, {plan.dataset}, "
            f"{count(plan.held_out, 'prompt')} held out; "
            f"{count(plan.steps, 'step')} of {plan.batch_size} × {count(plan.window, 'token')}"
        )
        if position.step:
            self.say(f"resumed  at step {position.step}, after {clock(position.seconds)}")
        self._steps, self._first = plan.steps, position.step
        self._began = self._last_line = time.monotonic()
        self._step, self._loss, self._limit = position.step, 0.0, math.inf
        if self.live_view:
            self._live = Live(
                self._training(), console=self.console, refresh_per_second=4, transient=True
            )
            self._live.start()

    def step_done(self, step: int, loss: float, limit_s: float) -> None:
        """Count a step; `limit_s` is what is left of a time budget."""
        now = time.monotonic()
        self._step, self._loss, self._limit = step, loss, limit_s
        if self._live is not None and now - self._last_draw >= DRAW_EVERY_S:
            self._last_draw = now
            self._live.update(self._training())
        elif self._live is None and now - self._last_line >= LOG_EVERY_S:
            self._last_line = now
            self._log(f"step {step}/{self._steps}, loss {loss:.3f}, {clock(self._left_s())} left")

    def row_done(self, row: Row) -> None:
        """Show a row of the curve; the last one stands on stdout when all is done."""
        self._last_line = time.monotonic()
        if row["step"] == self._steps:
            return
        self.say(row_told(row, self._steps))

    def _left_s(self) -> float | None:
        done = self._step - self._first
        if not done:
            return None
        whole = (time.monotonic() - self._began) / done * (self._steps - self._step)
        return min(whole, self._limit)

    def _training(self) -> Group:
        filled = BAR * self._step // max(1, self._steps)
        bar = "━" * filled + "[dim]" + "━" * (BAR - filled) + "[/dim]"
        line = Table.grid(padding=(0, 2))
        left = f"{clock(self._left_s())} left"
        line.add_row("step", bar, f"{self._step}/{self._steps}", f"loss {self._loss:.3f}", left)
        return Group(line)


def row_told(row: Row, steps: int) -> str:
    """A row of the curve in words."""
    alpha = f"α {fixed(row['alpha'], 3)}"
    if row["alpha_low"] is not None:
        alpha += f" [{fixed(row['alpha_low'], 3)}, {fixed(row['alpha_high'], 3)}]"
    if row["alpha_deep"] is not None:
        alpha += f", at the chain's end {fixed(row['alpha_deep'], 3)}"
    loss = "" if row["loss"] is None else f"loss {fixed(row['loss'], 3)}, "
    return f"step {row['step']}/{steps}, {loss}held-out {alpha}"
