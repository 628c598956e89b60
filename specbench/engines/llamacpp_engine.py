"""`llamacpp`: llama.cpp's server, started here through the package `xllamacpp`, one for each γ.

A γ in a request is silently ignored there, so that every γ is a server of its own. They share the
file of the weights and run one at a time, so that idle ones cost memory for their caches alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path

from specbench.drafts.ngram import lengths
from specbench.engine_table import ENGINES
from specbench.engines.arguments import Arguments
from specbench.engines.base import DraftRef, Settings
from specbench.engines.served import ServedEngine
from specbench.errors import CellRefused, PairRefused, UsageError
from specbench.models import loading
from specbench.models.lm import context_limit
from specbench.records import Cell, Prompt
from specbench.serving.faults import ServerFault
from specbench.serving.hosting import Host, python_module
from specbench.serving.llamacpp_host import READY
from specbench.serving.service import Service, open_service
from specbench.serving.transport import address_of

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0")
SAMPLINGS = ("greedy", "probabilistic")
FLASH = ("auto", "on", "off")
ROUND = 64
"""Tokens of a slot's context are a multiple of this."""
LAYERS = 100_000


class LlamaCppEngine(ServedEngine):
    """GGUF files in llama.cpp, a process per γ."""

    name = "llamacpp"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if util.find_spec("xllamacpp") is None:
            raise UsageError(
                "--engine llamacpp: the package xllamacpp is not installed",
                hint="pip install 'specbench-sd[llamacpp]'",
            )
        given = Arguments(self.name, settings.arguments)
        given.refuse_unknown(ENGINES[self.name].options)
        self.options: dict[str, object] = {
            name: value
            for name, known in (
                ("cache_type", CACHE_TYPES), ("draft_sampling", SAMPLINGS), ("flash_attn", FLASH),
            )
            if (value := given.choice(name, known))
        }  # fmt: skip
        self.options["gpu_layers"] = given.number("gpu_layers", 0, 0, LAYERS)
        self.start_s = given.number("start", 600, 1, 86_400)
        self.target = gguf_of(settings.target, "--target")
        self._limit_of_target = 0
        self._limit_of_draft = 0
        self._shape = (1, ROUND)
        """Slots of the servers, and tokens of a slot."""
        self._hosts: dict[int, tuple[Host, Service]] = {}

    def open_target(self) -> None:
        """The tokenizer inside the file; the weights are read by the servers."""
        self.load_tokenizer(self.settings.target, "--target")
        self._limit_of_target = self._limit_of(self.settings.target, "--target")

    def open_draft(self, draft: DraftRef) -> None:
        """Another draft needs other servers; the one that is there already stays."""
        if draft == self.draft:
            return
        self.close()
        self._limit_of_draft = self._limit_of_target
        if draft.kind == "hf":
            gguf_of(draft.ref, "--draft")
            self._limit_of_draft = self._limit_of(draft.ref, "--draft")
            self.refuse_other_vocabulary(draft)
        elif draft.kind == "ngram":
            _looked_up(draft)
        self.draft = draft

    def examine(self, prompts: Sequence[Prompt], gamma: int) -> dict[str, object]:
        """How it decides: a draft is kept iff it equals the target's own sample."""
        self._fit(1, max(len(p.token_ids) for p in prompts), gamma)
        try:
            self.service(gamma)
        except CellRefused as err:
            assert self.draft is not None
            where = err.where or f"--draft {self.draft.label}"
            raise PairRefused(err.what, where=where, hint=err.hint) from err
        probabilistic = self.options.get("draft_sampling") == "probabilistic"
        drafting = self._drafting().get("draft")
        return {
            **super().examine(prompts, gamma),
            "verify_rule": "llama.cpp probabilistic" if probabilistic else "match",
            **({"dtype": number_format(Path(str(drafting)))} if drafting else {}),
        }

    def prepare(self, cells: Sequence[Cell], prompts: Sequence[Prompt]) -> None:
        """A server for every γ of the block, with room for its batch and its longest prompt."""
        longest = max(len(p.token_ids) for p in prompts)
        self._fit(cells[0].batch_size, longest, max(cell.gamma for cell in cells))
        for cell in cells:
            self.service(cell.gamma)

    def service(self, gamma: int) -> Service:
        """The server of this γ, started if it is not there; one that has ended is refused."""
        known = self._hosts.get(gamma)
        if known is None:
            known = self._hosts[gamma] = self._started(gamma)
        host, service = known
        if not host.running:
            del self._hosts[gamma]
            lines = host.last_lines()
            host.stop()
            raise CellRefused(f"llama.cpp ended during the run; its last lines:\n{lines}")
        return service

    @property
    def context(self) -> int:
        """The smaller of the two models' limits."""
        limits = [self._limit_of_target]
        return min([*limits, self._limit_of_draft] if self.draft else limits)

    def describe(self) -> dict[str, str]:
        """As far as it is known here."""
        place = "gpu" if self.options["gpu_layers"] else "cpu"
        return {
            "device": place,
            "dtype": number_format(self.target),
            "draft_dtype": "",
            "threads": str(self.settings.threads or ""),
        }

    def facts(self) -> dict[str, object]:
        """Versions and what was asked for."""
        return {"xllamacpp": metadata.version("xllamacpp"), **self.options}

    def close(self) -> None:
        """End the servers."""
        for host, _ in self._hosts.values():
            with suppress(OSError):
                host.stop()
        self._hosts.clear()

    def _limit_of(self, ref: str, flag: str) -> int:
        config = loading.load_config(loading.resolve(ref, flag))
        return context_limit(config)

    def _fit(self, slots: int, longest: int, gamma: int) -> None:
        """Shape of the servers; those of another shape are ended."""
        wanted = longest + self.settings.max_new_tokens + gamma + 1
        room = min(-(-wanted // ROUND) * ROUND, self.context)
        if (slots, room) != self._shape:
            self.close()
            self._shape = (slots, room)

    def _started(self, gamma: int) -> tuple[Host, Service]:
        slots, context = self._shape
        settings: dict[str, object] = {
            "model": str(self.target),
            "slots": slots,
            "context": context,
            "threads": self.settings.threads,
            "gamma": gamma,
            **self.options,
            **self._drafting(),
        }
        command = python_module("specbench.serving.llamacpp_host", json.dumps(settings))
        try:
            host = Host(command, READY, self.start_s)
        except ServerFault as fault:
            raise CellRefused(f"llama.cpp at gamma {gamma}: {fault.what}") from fault
        try:
            address = address_of(host.said, self.name, retries=1)
            service = open_service(address, [str(self.target)], self.probe(), self.name)
        except (ServerFault, UsageError) as err:
            host.stop()
            raise CellRefused(f"llama.cpp at gamma {gamma}: {err}") from err
        return host, replace(service, context=context)

    def _drafting(self) -> dict[str, object]:
        draft = self.draft
        if draft is None:
            return {}
        if draft.kind == "ngram":
            return {"ngram": _looked_up(draft)}
        own = draft.kind == "self"
        return {"draft": str(self.target if own else gguf_of(draft.ref, "--draft"))}


def _looked_up(draft: DraftRef) -> int:
    """Tokens that `ngram-simple` looks up: that many, neither more nor fewer."""
    options = dict(draft.options)
    longest, shortest = lengths(options, draft.label)
    if "min" in options and shortest != longest:
        raise PairRefused(
            f"{draft.label}: llama.cpp looks up max tokens and no fewer",
            where="--engine llamacpp",
            hint=f"ngram:max={longest}, or --engine torch",
        )
    return longest


def gguf_of(ref: str, flag: str) -> Path:
    """The file of a GGUF model; what is no such file is refused."""
    source = loading.resolve(ref, flag)
    if not source.gguf_file:
        raise UsageError(
            f"--engine llamacpp: {ref} is no .gguf file",
            where=f"{flag} {ref}",
            hint="llama.cpp's convert_hf_to_gguf.py makes one of a folder",
        )
    return Path(source.path) / source.gguf_file


DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Formats that other engines have too, in their words."""


@lru_cache
def number_format(file: Path) -> str:
    """What most of a GGUF file's weights are stored as: `float32`, `Q4_1` …; empty if not told."""
    import gguf

    with suppress(ValueError, KeyError, IndexError, OSError):
        found = gguf.GGUFReader(file).fields["general.file_type"].contents()
        name = str(gguf.LlamaFileType(int(found)).name).partition("_")[2]
        return DTYPES.get(name, name)
    return ""
