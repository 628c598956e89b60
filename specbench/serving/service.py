"""What stands behind a URL: which tool, which model, how it is best asked, whether it counts."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from specbench.engine_table import OTHER_CLIENT
from specbench.errors import UsageError, clean
from specbench.models.lm import UNLIMITED
from specbench.records import Prompt, Sampling
from specbench.serving.ask import ask
from specbench.serving.dialects import Api, Ask
from specbench.serving.faults import ServerFault
from specbench.serving.metrics import Counters, counters, refuse_others, settled
from specbench.serving.transport import Address, Payload, get, get_json
from specbench.wording import count

OWNERS: dict[str, Api] = {"llamacpp": "llamacpp", "sglang": "sglang"}
"""`owned_by` of a tool's models to the API that tells most about a request."""
REFUSED = (400, 404, 405, 415, 422, 501)
"""Statuses of a server that does not take requests of this form."""
UNKNOWN_CLIENT = (401, 403)
"""Statuses that ask for a key."""
SETTLING_S, LOOK_S = 5.0, 0.02
"""How long counters may lag behind the answers, and how often they are read meanwhile."""


@dataclass(frozen=True, slots=True)
class Service:
    """One server that can be measured."""

    address: Address
    model: str
    """As its requests name it."""
    tool: str
    """`vllm`, `llamacpp`, `sglang` or what the server calls itself."""
    api: Api
    context: int
    """Tokens of prompt and output together; a very large number where the server does not say."""
    counts: bool
    """Whether it has counters that are read."""

    def counters(self) -> Counters:
        """Its counters now; zero of each where it has none."""
        return counters(get(self.address, "/metrics")) if self.counts else Counters({})

    def quiet(self) -> Counters:
        """Its counters before some requests, once they stand still; refused where others run."""
        last = self.counters()
        for _ in _looks():
            before, last = last, self.counters()
            if not last.busy and last == before:
                return last
        told = f"busy with {count(int(last.busy), 'request')}" if last.busy else "counting"
        raise ServerFault("reply", f"{self.address.url} is {told} of {OTHER_CLIENT}")

    def grown(self, before: Counters, tokens: int, requests: int) -> Counters:
        """What it counted since, once it has counted all of it; refused if it counted more."""
        if not self.counts:
            return before
        grown = self.counters().since(before)
        for _ in _looks():
            if settled(grown, tokens, requests):
                break
            grown = self.counters().since(before)
        try:
            refuse_others(grown, tokens, requests)
        except ServerFault as fault:
            raise ServerFault("reply", f"{self.address.url}: {fault.what}") from fault
        return grown


def _looks() -> Iterator[None]:
    """Moments to look again, until it has lasted too long."""
    end = time.perf_counter() + SETTLING_S
    while time.perf_counter() < end:
        time.sleep(LOOK_S)
        yield


def open_service(
    address: Address, wanted: Sequence[str], probe: Prompt, where: str, *, named: str = ""
) -> Service:
    """Find out what serves a URL.

    Parameters
    ----------
    wanted
        What the recipe calls the target; the server has to serve a model of such a name.
    probe
        A short prompt, of which one token is asked.
    where
        Flag or key that gave the URL.
    named
        The name of the model as the server has it, if the user says that it is the target.

    Raises
    ------
    UsageError
        The server is not there, serves another model, or takes no prompt.
    """
    try:
        known = get_json(address, "/v1/models")
    except ServerFault as fault:
        raise UsageError(fault.what, where=where, hint=_try(fault)) from fault
    entry = _entry(known, [named] if named else wanted, address, where)
    owner = clean(str(entry.get("owned_by", "")))
    counts, tool = _metrics(address, owner)
    model = str(entry["id"])
    first = OWNERS.get(owner, "completions")
    service = Service(address, model, tool, first, _context(entry), counts)
    before = service.counters()
    service = replace(service, api=_api(address, model, probe, first, where))
    for _ in _looks():
        # So that the probe is not counted with what follows.
        if settled(service.counters().since(before), 1, 1):
            break
    return service


def _try(fault: ServerFault) -> str:
    """What a user can do about a server that does not tell its models."""
    if fault.status in UNKNOWN_CLIENT:
        return "--engine-arg api_key_env=VARIABLE, the variable that holds the server's key"
    return "the server's own URL" if fault.status else "start the server first, or another URL"


def _entry(known: Payload, wanted: Sequence[str], address: Address, where: str) -> Payload:
    """The model that the recipe means, among those served."""
    data = known.get("data")
    entries = [e for e in data if isinstance(e, dict)] if isinstance(data, list) else []
    served = [(names, entry) for entry in entries if (names := _names(entry))]
    short = {_short(name) for name in wanted}
    for names, entry in served:
        if short & {_short(name) for name in names}:
            return {**entry, "id": names[0]}
    told = clean(", ".join(names[0] for names, _ in served) or "no model")
    first = shlex.quote(f"model={clean(served[0][0][0])}") if served else ""
    raise UsageError(
        f"{address.url} serves {told}, and not {clean(wanted[0])}",
        where=where,
        hint=f"another URL; if it is the same model, --engine-arg {first}"
        if served
        else "another URL",
    )


def _names(entry: Payload) -> list[str]:
    """What a server calls a model, its id first; vLLM's root is where it was loaded from."""
    aliases = entry.get("aliases")
    found = [entry.get("id"), entry.get("root"), *(aliases if isinstance(aliases, list) else ())]
    return [name for name in found if isinstance(name, str) and name]


def _short(name: str) -> str:
    return PurePosixPath(name.rstrip("/").replace("\\", "/")).name or name


def _context(entry: Payload) -> int:
    """vLLM and SGLang say it beside the model, llama.cpp among what it knows of it."""
    meta = entry.get("meta")
    found = entry.get("max_model_len")
    if found is None and isinstance(meta, dict):
        found = meta.get("n_ctx")
    return found if isinstance(found, int) and found > 0 else UNLIMITED


def _metrics(address: Address, owner: str) -> tuple[bool, str]:
    """Whether there are counters that are read, and the tool they belong to."""
    try:
        text = get(replace(address, retries=0), "/metrics")
    except ServerFault:
        return False, owner
    found = counters(text)
    tool = next((t for t in ("vllm", "sglang", "llamacpp") if f"\n{t}:" in f"\n{text}"), owner)
    return bool(found.values), tool


def _api(address: Address, model: str, probe: Prompt, first: Api, where: str) -> Api:
    """The first form of request that the server takes."""
    forms: list[Api] = [first, "text"] if first == "completions" else [first, "completions", "text"]
    if probe.messages:
        forms.append("chat")
    said = ""
    for form in forms:
        try:
            ask(address, form, Ask(model, probe, Sampling(0.0), 1, seed=0))
        except ServerFault as fault:
            said = said or fault.what
            if fault.status not in REFUSED:
                raise UsageError(fault.what, where=where, hint="see the server's log") from fault
        else:
            return form
    raise UsageError(said, where=where, hint="a server with OpenAI's /v1/completions")
