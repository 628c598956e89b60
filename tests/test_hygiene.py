"""CUDA hygiene, proved on the CPU: one host read per cycle, no upload, fixed addresses.

Three nets: the meta device, on which a host read raises; a dispatch mode, which sees
hidden reads, uploads and operators that wait inside; a function mode, which sees `tolist` and its
like. Each net is shown to hold by planting what it must catch.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import psutil
import pytest
import torch
from models import GREEDY, build, drafter, iid, itself, lm, noisy, outputs, rnd, run, streams
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from specbench.drafts.hf import HfDraft
from specbench.engines.loop import Job, _Batch, decode
from specbench.engines.rows import Limits
from specbench.models.lm import CausalLM
from specbench.models.state import TextState
from specbench.records import Sampling

READS = {
    *("tolist", "cpu", "numpy", "item", "__array__", "__bool__", "__int__", "__float__"),
    *("__index__", "__format__", "__repr__", "__contains__"),
}
WAITING = {"nonzero", "masked_select", "multinomial", "_unique2", "equal", "repeat_interleave"}
BATCHES = [[[1, 5, 9]], [[1, 5, 9], [4], [2, 17, 30, 4, 4, 8]]]
SAMPLINGS = [GREEDY, Sampling(), Sampling(0.7, 8, 0.9)]


class HostReads(TorchFunctionMode):
    """Counts what is read from a tensor by name; on the meta device it answers for the one read."""

    def __init__(self, script: Sequence[int] = ()) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.script = list(script)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        to_cpu = name == "to" and "cpu" in [*args[1:], *(kwargs or {}).values()]
        if name in READS or to_cpu:
            self.seen[name] += 1
        if name == "tolist" and args[0].device.type == "meta":
            kept = self.script[self.seen[name] - 1]
            return [[kept] + [0] * (args[0].shape[1] - 1) for _ in range(args[0].shape[0])]
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    """Counts hidden reads, uploads, copies between devices and operators that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        waits = name in WAITING and func._overloadname != "self_int"
        if waits or name in {"_local_scalar_dense", "lift_fresh"}:
            self.seen[name] += 1
        if name in {"_to_copy", "copy_"} and crosses(args, kwargs or {}):
            self.seen["device copy"] += 1
        if name.startswith("index") and has_bool(args):
            self.seen["bool index"] += 1
        return func(*args, **(kwargs or {}))


def crosses(args: Any, kwargs: dict[str, Any]) -> bool:
    devices = {str(a.device) for a in args if isinstance(a, Tensor)}
    wanted = kwargs.get("device")
    return len(devices | ({str(wanted)} if wanted else set())) > 1


def has_bool(args: Any) -> bool:
    listed = [a for a in args if isinstance(a, (list, tuple))]
    flat = [x for a in listed for x in a if isinstance(x, Tensor)]
    return any(x.dtype == torch.bool for x in flat)


def watched(call: Callable[[], Any]) -> tuple[Counter[str], Counter[str]]:
    """What the two nets caught while `call` ran."""
    with Dispatches() as dispatches, HostReads() as reads:
        call()
    return reads.seen, dispatches.seen


def per_cycle(
    target: CausalLM, draft: HfDraft | None, batch: list[list[int]], gamma: int, how: Sampling
) -> tuple[Counter[str], Counter[str]]:
    """What four more cycles add: SELF keeps all, so that each gives γ + 1 tokens in every row."""
    counts = [
        watched(lambda n=n: run(target, draft, batch, gamma, sampling=how, max_new=n * (gamma + 1)))
        for n in (4, 8)
    ]
    (reads, calls), (more_reads, more_calls) = counts
    more_reads.subtract(reads)
    more_calls.subtract(calls)
    return +more_reads, +more_calls


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("batch", BATCHES, ids=["one", "ragged"])
@pytest.mark.parametrize("gamma", [0, 3])
def test_one_read_and_no_upload(gamma: int, batch: list[list[int]], sampling: Sampling) -> None:
    """In a normal cycle: exactly one `tolist`, and nothing else crosses or waits."""
    target = lm(rnd())
    reads, calls = per_cycle(target, itself(target), batch, gamma, sampling)
    assert reads == {"tolist": 4}
    assert calls == {}


@pytest.mark.parametrize("batch", BATCHES, ids=["one", "ragged"])
@pytest.mark.parametrize("family", ["gpt2", "mistral", "qwen3", "gemma2", "gemma3"])
def test_one_read_in_other_families(family: str, batch: list[list[int]]) -> None:
    """The same with windows, score caps and learned positions."""
    target = lm(rnd(family))
    reads, calls = per_cycle(target, itself(target), batch, 3, GREEDY)
    assert (reads, calls) == ({"tolist": 4}, {})


def test_one_read_with_a_real_draft() -> None:
    """Rejections, corrections, rows that leave: reads = cycles, one upload for each departure."""
    target = lm(rnd())
    draft = drafter(noisy(rnd()), target)
    results = []
    reads, calls = watched(
        lambda: results.extend(run(target, draft, BATCHES[1], 3, sampling=Sampling(), max_new=24))
    )
    ends = {len(r.cycles) for r in results}
    start = watched(lambda: run(target, draft, BATCHES[1], 3, sampling=Sampling(), max_new=1))[1]
    assert len(ends) > 1
    assert reads == {"tolist": max(ends)}
    assert calls["lift_fresh"] - start["lift_fresh"] == len(ends) - 1
    assert calls["_local_scalar_dense"] == calls["device copy"] == calls["bool index"] == 0


def faults() -> dict[str, Callable[[Tensor], object]]:
    """Everything that must not happen inside a cycle."""
    return {
        "item": lambda x: x[0].item(),
        "int": lambda x: int(x[0]),
        "float": lambda x: float(x[0]),
        "bool": lambda x: bool(x[0] > 0),
        "if": lambda x: 1 if x[0] > 0 else 0,
        "slice bound": lambda x: x[: x[1].long()],
        "contains": lambda x: 2.0 in x,
        "format": lambda x: f"{x[0]}",
        "tolist": lambda x: x.tolist(),
        "cpu": lambda x: x.cpu(),
        "to": lambda x: x.to("cpu"),
        "numpy": lambda x: x.numpy(),
        "tensor": lambda x: torch.tensor([1.0, 2.0]),
        "list index": lambda x: x[[0, 1]],
        "nonzero": lambda x: x.nonzero(),
        "mask index": lambda x: x[x > 1],
        "masked_select": lambda x: x.masked_select(x > 1),
        "multinomial": lambda x: x.multinomial(1),
        "unique": lambda x: x.unique(),
        "equal": lambda x: torch.equal(x, x),
        "repeats": lambda x: x.repeat_interleave(torch.ones_like(x).long()),
        "one_hot": lambda x: torch.nn.functional.one_hot(x.long()),
    }


@pytest.mark.parametrize("name", faults())
def test_the_nets_hold(name: str) -> None:
    """Each fault, planted alone, is caught by one of the two counting nets."""
    x = torch.ones(4)
    reads, calls = watched(lambda: faults()[name](x))
    assert reads.total() + calls.total() > 0


def test_the_net_for_device_copies_holds() -> None:
    """A copy between devices, here to the meta device."""
    x = torch.ones(4)
    assert watched(lambda: x.to("meta"))[1] == {"device copy": 1}
    assert watched(lambda: torch.empty(4, device="meta").copy_(x))[1]["device copy"] == 1


class Leaky(HfDraft):
    """A draft with a planted fault in each commit."""

    fault: Callable[[Tensor], object]

    def commit(self, kept: list[int], state: TextState) -> None:
        """Do wrong, then the right thing."""
        self.fault(state.tokens[0, :2].double())
        super().commit(kept, state)


@pytest.mark.parametrize("name", ["item", "tensor", "nonzero", "cpu", "mask index"])
def test_a_fault_inside_a_cycle_is_seen(name: str) -> None:
    """The per-cycle counts change when the engine itself misbehaves."""
    target = lm(rnd())
    draft = Leaky(target, target.vocab_size)
    draft.fault = faults()[name]
    found = per_cycle(target, draft, BATCHES[0], 3, GREEDY)
    assert found != ({"tolist": 4}, {})


def meta_job(batch: list[list[int]], gamma: int, sampling: Sampling, tokens: int) -> Job:
    uniforms = streams([str(i) for i in range(len(batch))], tokens, gamma).to("meta")
    return Job(batch, gamma, sampling, Limits(tokens, 64, frozenset()), uniforms)


ON_META = [("llama", s) for s in SAMPLINGS]
ON_META += [(family, SAMPLINGS[2]) for family in ("gpt2", "mistral", "qwen3", "gemma2", "gemma3")]


@pytest.mark.parametrize("batch", BATCHES, ids=["one", "ragged"])
@pytest.mark.parametrize(("family", "sampling"), ON_META, ids=str)
def test_cycles_on_the_meta_device(family: str, batch: list[list[int]], sampling: Sampling) -> None:
    """Prefill, then cycles of 2, 4 and 1 tokens: any read but the one would raise here."""
    target = lm(build(family).to("meta"))
    draft = HfDraft(lm(build(family, seed=1).to("meta"), "draft"), 32)
    with HostReads(script=[1, 3, 0]) as reads:
        results = decode(meta_job(batch, 3, sampling, 7), target, draft)
    assert reads.seen == {"tolist": 3}
    assert [len(r.row.output) for r in results] == [7] * len(batch)


@pytest.mark.parametrize("name", ["int", "if", "numpy", "nonzero", "mask index", "to a cpu"])
def test_the_meta_net_holds(name: str) -> None:
    """A hidden read of a value, or a copy to the host by device, raises on the meta device."""
    target = lm(build().to("meta"))
    draft = Leaky(target, 32)
    draft.fault = {**faults(), "to a cpu": lambda x: x.to(torch.device("cpu"))}[name]
    job = meta_job(BATCHES[0], 3, GREEDY, 7)
    with pytest.raises((RuntimeError, TypeError)), HostReads(script=[1, 3, 0]):
        decode(job, target, draft)


class Watching(HfDraft):
    """Notes the addresses of every long-lived buffer after each cycle."""

    batch: _Batch

    def start(self, state: TextState, sampling: Sampling, capacity: int) -> None:
        """Begin a new list."""
        super().start(state, sampling, capacity)
        self.addresses: list[tuple[int, ...]] = []

    def commit(self, kept: list[int], state: TextState) -> None:
        """Note the text, and keys and values of both models."""
        slabs = [*self._session.cache.slabs, *self.batch.session.cache.slabs]
        tensors = [state.tokens, *(t for s in slabs for t in (s.keys, s.values))]
        self.addresses.append(tuple(t.data_ptr() for t in tensors))
        super().commit(kept, state)


def addresses(job: Job, target: CausalLM, draft: Watching) -> list[tuple[int, ...]]:
    draft.batch = _Batch(job, target, draft)
    with torch.inference_mode():
        draft.batch.run()
    return draft.addresses


def test_addresses_over_500_cycles() -> None:
    """No buffer moves; a draft that is always wrong makes a cycle of each token."""
    target = lm(iid((0.5, 0.5, 0.0)))
    draft = Watching(lm(iid((0.0, 0.0, 1.0)), "draft"), 3)
    limits = Limits(500, 1024, frozenset())
    job = Job([[1], [0, 1]], 1, Sampling(), limits, streams(["a", "b"], 500, 1))
    found = addresses(job, target, draft)
    assert len(found) == 500
    assert len(set(found)) == 1


def test_addresses_while_rows_leave() -> None:
    """Rows are moved to the front of the same buffers."""
    target = lm(rnd())
    draft = Watching(lm(noisy(rnd()), "draft"), 32)
    prompts = [[(3 * i + j) % 31 for i in range(1 + j)] for j in range(6)]
    limits = Limits(24, 128, frozenset({10}))
    job = Job(prompts, 3, GREEDY, limits, streams(list("abcdef"), 24, 3))
    assert len(set(addresses(job, target, draft))) == 1


def alive() -> int:
    gc.collect()
    return sum(issubclass(type(x), Tensor) for x in gc.get_objects())


def test_no_growth_over_many_generations() -> None:
    """200 generations leave no tensor behind, and the resident set where it was (8 MB)."""
    target = lm(rnd())
    draft = drafter(noisy(rnd()), target)

    def generate(times: int) -> None:
        for i in range(times):
            run(target, draft, BATCHES[i % 2], 2, sampling=SAMPLINGS[i % 3], max_new=6)

    generate(40)
    tensors, resident = alive(), psutil.Process().memory_info().rss
    generate(200)
    assert alive() <= tensors
    assert psutil.Process().memory_info().rss - resident < 8 * 2**20


def test_a_generation_leaves_the_collector_as_it_was() -> None:
    """Collection is off inside the loop and back on after it, after a failure too."""
    target = lm(rnd())
    run(target, None, [[1]], 0, max_new=2)
    assert gc.isenabled()
    with pytest.raises(IndexError):
        run(target, None, [[99]], 0, max_new=2)
    assert gc.isenabled()


def test_the_same_state_twice() -> None:
    """Two runs from the same start agree: nothing is kept between generations."""
    target = lm(rnd())
    draft = drafter(noisy(rnd()), target)
    once, twice = (
        outputs(run(target, draft, BATCHES[1], 3, sampling=Sampling())) for _ in range(2)
    )
    assert once == twice
