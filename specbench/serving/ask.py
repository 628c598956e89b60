"""Requests to a server: one, or a batch at once, each in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from specbench.serving.dialects import PATHS, Api, Ask, body, read
from specbench.serving.faults import ServerFault
from specbench.serving.replies import Reading, Reply
from specbench.serving.transport import Address, Payload, encoded, opened, stream


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch of requests gave, in order."""

    outcomes: tuple[Reply | ServerFault, ...]
    cpu_s: float
    """Process CPU time of the client while it ran."""
    shares_s: tuple[float, ...]
    """Of each request: the time behind its first token, divided among all that decoded then."""

    @property
    def replies(self) -> list[Reply]:
        """Those that came whole."""
        return [one for one in self.outcomes if isinstance(one, Reply)]

    @property
    def faults(self) -> list[ServerFault]:
        """The others."""
        return [one for one in self.outcomes if isinstance(one, ServerFault)]


def ask(address: Address, api: Api, one: Ask) -> Reply:
    """One request from its leaving to the end of its stream."""
    return _asked(address, api, body(api, one), one.max_new_tokens)[1]


def ask_all(address: Address, api: Api, asks: Sequence[Ask]) -> Batch:
    """Requests that leave together; a fault of one is told in its place."""
    found: list[tuple[float, Reply] | ServerFault] = [ServerFault("cut", "not asked")] * len(asks)
    bodies = [body(api, one) for one in asks]
    start = threading.Barrier(len(asks))

    def run(at: int) -> None:
        start.wait()
        try:
            found[at] = _asked(address, api, bodies[at], asks[at].max_new_tokens)
        except ServerFault as fault:
            found[at] = fault

    threads = [threading.Thread(target=run, args=(at,), daemon=True) for at in range(len(asks))]
    cpu = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu = time.process_time() - cpu
    spans = [
        (0.0, 0.0)
        if isinstance(one, ServerFault)
        else (one[0] + one[1].first_s, one[0] + one[1].last_s)
        for one in found
    ]
    outcomes = tuple(one if isinstance(one, ServerFault) else one[1] for one in found)
    return Batch(outcomes, cpu, tuple(shared(spans)))


def shared(spans: Sequence[tuple[float, float]]) -> list[float]:
    """The length of each span, every moment divided among the spans that hold it.

    They add up to the time in which there was any.

    Examples
    --------
    >>> shared([(0.0, 3.0), (1.0, 3.0), (5.0, 6.0)])
    [2.0, 1.0, 1.0]
    """
    moments = sorted({moment for span in spans for moment in span})
    out = [0.0] * len(spans)
    for start, end in pairwise(moments):
        live = [at for at, (first, last) in enumerate(spans) if first <= start and end <= last]
        for at in live:
            out[at] += (end - start) / len(live)
    return out


def _asked(address: Address, api: Api, payload: Payload, wanted: int) -> tuple[float, Reply]:
    """When the request left, and what came of it."""
    with opened(address, "POST", PATHS[api], encoded(payload)) as answer:
        reading = Reading(wanted, answer.url)
        try:
            for event in stream(answer):
                if not event.last:
                    reading.feed(event.at_s, read(api, event.payload))
        except ServerFault as fault:
            raise ServerFault(fault.kind, f"{fault.what}{reading.came()}") from fault
        return answer.sent_s, reading.reply(answer.sent_s)
