"""Whether the largest cell of a sweep fits into memory, told before anything is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from specbench.engines.torch_engine import TorchEngine
from specbench.latency.memory_need import Need, memory_need
from specbench.latency.roofline import Shape
from specbench.models.environment import memory_bytes
from specbench.models.shapes import shape_of
from specbench.settings.recipe import Block
from specbench.wording import fixed


def tell_memory(
    engine: TorchEngine,
    shapes: Mapping[str, Shape | None],
    blocks: Sequence[Block],
    longest: int,
    say: Callable[[str], None],
) -> None:
    """Say so where the cell that needs most needs more than the device has."""
    target = shape_of(engine.target)
    if target is None:
        return
    found = [(need, block) for block in blocks if (need := _need(target, shapes, block, longest))]
    if not found:
        return
    need, block = max(found, key=lambda one: one[0].total)
    there = memory_bytes(engine.device)
    if need.total > there:
        say(
            f"note: {block.draft.label} at batch {block.batch_size} and {longest} tokens needs "
            f"{_gb(need.total)} GB (KV {_gb(need.cache)}), and there are {_gb(there)}; "
            "a smaller --batch-size, or shorter texts"
        )


def _need(
    target: Shape, shapes: Mapping[str, Shape | None], block: Block, longest: int
) -> Need | None:
    gamma = max(block.gammas)
    return memory_need(
        target,
        shapes.get(block.draft.label),
        rows=block.batch_size,
        tokens=longest + gamma,
        gamma=gamma,
        greedy=block.sampling.greedy,
    )


def _gb(size: int) -> str:
    return fixed(size / 2**30, 1)
