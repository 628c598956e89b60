"""`vllm`: vLLM's server, started here from an environment of its own, one γ after another.

A server takes the memory of its devices for itself, and its γ is fixed when it starts, so that one
is ended before the next is started.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import util
from pathlib import Path

from specbench.engines.arguments import FLAG, Arguments
from specbench.engines.base import DraftRef, Settings
from specbench.engines.served import ServedEngine
from specbench.engines.vllm_drafts import drafting, folder_of
from specbench.errors import CellRefused, PairRefused, UsageError
from specbench.models import loading
from specbench.models.lm import context_limit
from specbench.records import Cell, Prompt
from specbench.serving.faults import ServerFault
from specbench.serving.hosting import Host, python_module
from specbench.serving.service import Service, open_service
from specbench.serving.transport import address_of
from specbench.serving.vllm_command import (
    Installed,
    Wanted,
    command,
    environment_for,
    installed,
    refused,
)
from specbench.serving.vllm_host import READY
from specbench.settings.places import portable

PATIENCE_S = 20.0
"""For a server and its workers to end by themselves."""
REASON = r"((?:\w+\.)*\w*(?:Error|Exception): (?!Engine core init)\S.*)"
"""In a server's log: what went wrong, which its last lines often only point at."""
DTYPE = r"Initializing a V1 LLM engine.*\bdtype=torch\.(\w+)"


class VllmEngine(ServedEngine):
    """A vLLM server for the γ that is measured."""

    name = "vllm"
    in_turn = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        given = dict(settings.arguments)
        self.start_s = Arguments(self.name, settings.arguments).number("start", 1800, 1, 86_400)
        given.pop("start", None)
        for name, value in given.items():
            if why := refused(name, value):
                raise UsageError(f"{FLAG} {name}: {why}", where=f"--engine {self.name}")
        self.passed = tuple(given.items())
        if settings.draft_dtype not in (None, settings.dtype):
            raise UsageError(
                f"--draft-dtype {settings.draft_dtype}: vLLM runs a draft in the target's dtype",
                where=f"--engine {self.name}",
                hint="without --draft-dtype",
            )
        self.target = folder_of(settings.target, "--target")
        self.installed = _found(settings.python)
        self._refuse_device(settings.device or self.installed.device)
        self._running: tuple[int, Host, Service] | None = None
        self._limits = (0, 0)
        """Tokens of the target's context, and of the draft's."""
        self._dtype = settings.dtype or ""

    def _refuse_device(self, device: str) -> None:
        """A vLLM runs on what it was built for; it takes GPUs by their order, not by a number."""
        here = {"gpu": "cuda"}.get(self.installed.device, self.installed.device)
        if device not in (here, self.installed.device):
            raise UsageError(
                f"--device {device}: the vLLM that is installed runs on {here}",
                where=f"--engine {self.name}",
                hint="another --engine-python; CUDA_VISIBLE_DEVICES chooses among GPUs",
            )

    def open_target(self) -> None:
        """The tokenizer; the weights are read by the servers."""
        self.load_tokenizer(self.settings.target, "--target")
        limit = self._limit_of(self.settings.target, "--target")
        self._limits = (limit, limit)

    def open_draft(self, draft: DraftRef) -> None:
        """Another draft needs other servers; what cannot be drafted with is refused here."""
        if draft == self.draft:
            return
        if self._running is not None and self._running[0]:
            self.close()
        self._drafting(draft)
        limit = self._limits[0]
        own = draft.kind == "hf"
        if own:
            self.refuse_other_vocabulary(draft)
        self._limits = (limit, self._limit_of(draft.ref, "--draft") if own else limit)
        self.draft = draft

    def examine(self, prompts: Sequence[Prompt], gamma: int) -> dict[str, object]:
        """Start it, and say by which rule it decides."""
        assert self.draft is not None
        try:
            self.service(gamma)
        except CellRefused as err:
            raise PairRefused(err.what, where=f"--draft {self.draft.label}") from err
        config = self._drafting(self.draft)
        greedy = config.get("draft_sample_method", "greedy") == "greedy"
        method = config.get("rejection_sample_method", "standard")
        rule = "one-hot" if greedy else "exact"
        return {
            **super().examine(prompts, gamma),
            "verify_rule": rule if method == "standard" else f"vllm {method}",
            **({"dtype": self._dtype} if self._dtype and "model" in config else {}),
        }

    def prepare(self, cells: Sequence[Cell], prompts: Sequence[Prompt]) -> None:
        """Every server comes when its cell does."""

    def service(self, gamma: int) -> Service:
        """The server of this γ, started in place of another; one that has ended is refused."""
        if self._running is None or self._running[0] != gamma:
            self.close()
            self._running = (gamma, *self._started(gamma))
        _, host, service = self._running
        if not host.running:
            told = host.last_lines()
            self.close()
            raise CellRefused(
                f"vLLM at gamma {gamma} ended during the run; its last lines:\n{told}"
            )
        return service

    @property
    def serving(self) -> int | None:
        """The γ of the server that is there."""
        return self._running[0] if self._running else None

    @property
    def context(self) -> int:
        """The smaller of the two models' limits, and of the server's."""
        known = [self._running[2].context] if self._running else []
        return min(*self._limits, *known)

    def describe(self) -> dict[str, str]:
        """As far as it is known here; the dtype as the server's log has it."""
        return {
            "device": self.installed.device,
            "dtype": self._dtype,
            "draft_dtype": "",
            "threads": str(self._threads or ""),
        }

    def facts(self) -> dict[str, object]:
        """Versions and what was asked for."""
        known = self.installed
        config = self._drafting(self.draft) if self.draft else {}
        return {
            "package": known.package,
            "version": known.version,
            "torch": known.torch,
            "counts": "of each request" if known.per_request else "/metrics",
            **({"method": config["method"]} if "method" in config else {}),
            **(
                {"arguments": {name: portable(value) for name, value in self.passed}}
                if self.passed
                else {}
            ),
        }

    def close(self) -> None:
        """End the server and its workers."""
        if self._running is not None:
            _, host, _ = self._running
            self._running = None
            with suppress(OSError):
                host.stop()
        self._warmed.clear()

    @property
    def _threads(self) -> int | None:
        return self.settings.threads if self.installed.device == "cpu" else None

    def _limit_of(self, ref: str, flag: str) -> int:
        trust = self.settings.trust_remote_code
        config = loading.load_config(loading.resolve(ref, flag), trust_remote_code=trust)
        return context_limit(config.get_text_config(decoder=True))

    def _drafting(self, draft: DraftRef) -> dict[str, object]:
        return drafting(draft, self.target, self.passed, self.installed)

    def _started(self, gamma: int) -> tuple[Host, Service]:
        port = free_port()
        drafting = self._drafting(self.draft) if gamma and self.draft else {}
        wanted = Wanted(
            self.target,
            f"specbench-{port}",
            port,
            self.settings.seed % 2**31,
            self.settings.dtype or "",
            self.settings.trust_remote_code,
            {**drafting, "num_speculative_tokens": gamma} if gamma else {},
            self.passed,
        )
        settings = {
            "command": command(self.installed, wanted),
            "environment": environment_for(self.installed.python, os.environ, self._threads),
            "url": wanted.url,
        }
        words = python_module("specbench.serving.vllm_host", json.dumps(settings))
        try:
            host = Host(words, READY, self.start_s, PATIENCE_S, REASON)
        except ServerFault as fault:
            raise CellRefused(f"vLLM at gamma {gamma}: {fault.what}") from fault
        try:
            address = address_of(host.said, self.name, retries=1)
            service = open_service(address, [wanted.name], self.probe(), self.name)
        except (ServerFault, UsageError) as err:
            told = host.last_lines()
            host.stop()
            raise CellRefused(f"vLLM at gamma {gamma}: {err}\n{told}") from err
        self._dtype = host.found(DTYPE) or self._dtype
        return host, replace(service, context=min(service.context, *self._limits))


def _found(python: str) -> Installed:
    """The vLLM that is asked for, else one that is installed beside this package."""
    if not python and util.find_spec("vllm") is None:
        raise UsageError(
            "--engine vllm: no vLLM is named",
            hint="--engine-python PATH, the Python of an environment in which vLLM is installed",
        )
    try:
        # Not resolved: the link in a virtual environment is what makes it one.
        return installed(str(Path(python).expanduser().absolute()) if python else sys.executable)
    except ServerFault as fault:
        raise UsageError(
            f"--engine-python {fault.what}",
            hint="the Python of an environment in which vLLM is installed, such as env/bin/python",
        ) from fault


def free_port() -> int:
    """A port of this machine that nobody listens on at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
