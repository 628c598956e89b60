"""Our own loop with the pair open, to score and to check the texts that an engine wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from specbench.engines.base import DraftRef, Engine
from specbench.engines.torch_engine import TorchEngine
from specbench.measure.opening import pair_here


@contextmanager
def scorer_for(engine: Engine, draft: DraftRef) -> Iterator[TorchEngine]:
    """The engine itself, or the same pair loaded here for as long as it is needed.

    Raises what loading raises: weights that are not here, or that do not fit.
    """
    here = pair_here(engine)
    if here is not None:
        engine.open_draft(draft)
        yield here
        return
    own = TorchEngine(replace(engine.settings, forward="eager", arguments=()))
    try:
        own.open_target()
        own.open_draft(draft)
        yield own
    finally:
        own.close()
