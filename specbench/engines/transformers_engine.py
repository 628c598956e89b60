"""`transformers`: the library's own `generate`, with an assistant model or prompt lookup.

γ is fixed: the schedule is constant and no confidence stops a draft. Only the EOS ids are taken
from a checkpoint's generation config. Drafting ends at an EOS, and as everywhere the last cycle
drafts γ: `generate` is asked for γ + 1 tokens more than wanted and stopped when they are there.
"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from transformers.utils import logging as hf_logging

from specbench.engine_table import ENGINES
from specbench.engines.arguments import Arguments
from specbench.engines.base import DraftRef, Settings
from specbench.engines.failures import failed, is_out_of_memory, reason_of, too_long
from specbench.engines.generate_tape import MARKS, Ends, Tape, cycles_of, stopper
from specbench.engines.torch_engine import WARM_UP_TOKENS, TorchEngine
from specbench.errors import CellFailed, PairRefused
from specbench.models.timing import make_clock
from specbench.records import Cell, FinishReason, Generation, Prompt, Sampling

LOOKUP = "ngram"
SEEDS = 2**63
MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
"""Ways of accelerate to lay a model's layers over devices."""


class TransformersEngine:
    """Stock `generate` over the models of our own loop, one prompt at a time."""

    name = "transformers"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        given = Arguments(self.name, settings.arguments)
        given.refuse_unknown(ENGINES[self.name].options)
        self._map = given.choice("device_map", MAPS)
        self._pair = TorchEngine(settings, self._map or None)
        self._target: Any = None
        self._draft: Any = None
        self._opened: DraftRef | None = None

    @property
    def own(self) -> TorchEngine | None:
        """The same pair in our own loop, which scores it; none over several devices."""
        return None if self._map else self._pair

    @property
    def device(self) -> torch.device:
        """Where ids go in and logits come out."""
        return self._pair.device

    @property
    def tokenizer(self) -> Any:
        """The target's."""
        return self._pair.tokenizer

    @property
    def context(self) -> int:
        """Tokens of prompt and output together: the smaller limit of the pair."""
        return self._pair.context

    def open_target(self) -> None:
        """Load the target as our own loop does; the weights are shared."""
        self._pair.open_target()
        self._target = stock(self._pair.target.model)

    def open_draft(self, draft: DraftRef) -> None:
        """Load an assistant model, or the options of a lookup."""
        if draft == self._opened:
            return
        self._draft = self._opened = None
        self._pair.open_draft(draft)
        lm = getattr(self._pair.draft, "lm", None)
        if lm is not None:
            if lm.vocab_size != self._pair.target.vocab_size:
                raise PairRefused(
                    f"tables of {lm.vocab_size} and {self._pair.target.vocab_size} tokens",
                    where=f"--engine transformers: {draft.label}",
                    hint="--engine torch, or a draft whose table is as large",
                )
            self._draft = stock(lm.model)
        elif dict(draft.options).get("min", 1) != 1:
            raise PairRefused(
                f"{draft.label}: prompt lookup goes down to single tokens",
                where="--engine transformers",
                hint="ngram:max=3, or --engine torch",
            )
        self._opened = draft

    def examine(self, prompts: Sequence[Prompt], gamma: int) -> dict[str, object]:
        """What the pair is; `generate` rolls back by itself and is not tested."""
        draft = self._pair.draft
        assert draft is not None
        return {
            "law": draft.law,
            "own_length": draft.own_length,
            "dtype": draft.dtype,
            "memory_mb": draft.nbytes() / 2**20,
            # A sampled draft token is kept where the target's own draw is the same token.
            **({"verify_rule": "match"} if self._draft is None else {}),
        }

    def prepare(self, cells: Sequence[Cell], prompts: Sequence[Prompt]) -> None:
        """Nothing: each call makes its own cache."""

    def warm_up(self, cells: Sequence[Cell], prompts: Sequence[Prompt]) -> None:
        """Run every shape once, outside all counts. A failure here is found again when measured."""
        for cell in cells:
            for prompt in prompts:
                if len(prompt.token_ids) < self.context:
                    try:
                        self._written(cell, prompt, 0, max(WARM_UP_TOKENS, cell.gamma + 2))
                    except Exception:  # a model's own code may raise anything
                        break

    def generate(self, cell: Cell, prompts: Sequence[Prompt], repeat: int) -> list[Generation]:
        """One text after the other."""
        return [self._generated(cell, prompt, repeat) for prompt in prompts]

    def text(self, ids: Sequence[int]) -> str:
        """Token ids as text, special tokens left out."""
        return self._pair.text(ids)

    def describe(self) -> dict[str, str]:
        """Device, dtypes and such, as files name them."""
        return self._pair.describe()

    def facts(self) -> dict[str, object]:
        """How `generate` is called."""
        return {
            "version": transformers.__version__,
            "attention": self._target.config._attn_implementation,
            "num_assistant_tokens_schedule": "constant",
            "assistant_confidence_threshold": 0.0,
            **({"device_map": self._map, "parts": self._parts()} if self._map else {}),
        }

    def _parts(self) -> dict[str, int]:
        """Parts of the target by the device that holds them."""
        found = getattr(self._pair.target.model, "hf_device_map", {"": self.device})
        return dict(Counter(map(str, found.values())))

    def close(self) -> None:
        """Free the models."""
        self._target = self._draft = self._opened = None
        self._pair.close()

    def _generated(self, cell: Cell, prompt: Prompt, repeat: int) -> Generation:
        if len(prompt.token_ids) >= self.context:
            return too_long(prompt, repeat, self.context)
        self._pair.meter.reset()
        try:
            return self._written(cell, prompt, repeat, self.settings.max_new_tokens)
        except CellFailed as err:
            return failed([prompt], repeat, "error", err.what)[0]
        except Exception as err:  # a model's own code may raise anything
            oom = is_out_of_memory(err)
            reason = "out of memory at batch 1" if oom else reason_of(err)
            return failed([prompt], repeat, "oom" if oom else "error", reason)[0]

    def _written(self, cell: Cell, prompt: Prompt, repeat: int, budget: int) -> Generation:
        size, gamma = len(prompt.token_ids), cell.gamma
        clock = make_clock(self._pair.device, MARKS * (budget + 1) + 1)
        tape = Tape(clock, size)
        text = self._call(cell, prompt, repeat, budget, tape)
        ends = Ends(gamma, budget, self.context, self._pair.eos)
        cycles = cycles_of(tape, ends)
        output = [token for c in cycles for token in c.emitted_ids[: c.num_delivered]]
        if output != text[size : size + budget]:
            raise CellFailed("the cycles do not add up to the text that generate gave")
        prefill, _ = tape.phases(plain=gamma == 0)
        return Generation(
            prompt.prompt_id,
            repeat,
            prompt.token_ids,
            finish_reason=_finish(output, budget, self._pair.eos),
            token_ids=tuple(output),
            cycles=cycles,
            prefill_s=prefill,
            cpu_s=tape.cpu[-1] - tape.cpu[0],
            peak_memory_mb=self._pair.meter.peak_mb(),
        )

    def _call(self, cell: Cell, prompt: Prompt, repeat: int, budget: int, tape: Tape) -> list[int]:
        """The one call; prompt and output."""
        size = len(prompt.token_ids)
        ids = torch.tensor([prompt.token_ids], device=self._pair.device)
        # A last cycle that starts one token before the end must be able to draft γ.
        room = budget + (cell.gamma + 1 if cell.gamma else 0)
        key = f"{self.settings.seed}/{prompt.prompt_id}/{repeat}/{cell.gamma}".encode()
        torch.manual_seed(int.from_bytes(hashlib.sha256(key).digest()[:8], "big") % SEEDS)
        with _silent(), tape.watching(self._target):
            out = self._target.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_length=min(size + room, self.context),
                streamer=tape,
                stopping_criteria=[stopper(tape, size + budget)],
                generation_config=self._config(),
                **self._drafting(cell.gamma),
                **law_arguments(cell.sampling),
            )
        found: list[int] = out[0].tolist()
        return found

    def _config(self) -> Any:
        """EOS ids, and nothing else that a checkpoint says.

        No padding id: one text is never padded, and `generate` would hide that id from the
        assistant wherever it stands in the text.
        """
        return transformers.GenerationConfig(eos_token_id=sorted(self._pair.eos) or None)

    def _drafting(self, gamma: int) -> dict[str, Any]:
        if not gamma:
            return {}
        if self._draft is None:
            assert self._opened is not None
            longest = int(dict(self._opened.options).get("max", 3))
            return {"prompt_lookup_num_tokens": gamma, "max_matching_ngram_size": longest}
        self._draft.generation_config = fixed_gamma(gamma, self._config())
        return {"assistant_model": self._draft}


def stock(model: Any) -> Any:
    """A copy that shares the weights, with the library's own attention and no saved defaults."""
    memo = {id(p): p for p in (*model.parameters(), *model.buffers())}
    made = copy.deepcopy(model, memo)
    made.set_attn_implementation("sdpa" if getattr(made, "_supports_sdpa", False) else "eager")
    made.generation_config = transformers.GenerationConfig()
    return made


def fixed_gamma(gamma: int, settings: Any) -> Any:
    """An assistant's settings with which every draft has γ tokens, whatever was kept before."""
    settings.num_assistant_tokens = gamma
    settings.num_assistant_tokens_schedule = "constant"
    settings.assistant_confidence_threshold = 0.0
    return settings


def law_arguments(law: Sampling) -> dict[str, Any]:
    """What `generate` is told of a law."""
    if law.greedy:
        return {"do_sample": False}
    given = {"temperature": law.temperature, "top_k": law.top_k, "top_p": law.top_p}
    return {"do_sample": True, **given}


def _finish(output: Sequence[int], budget: int, eos: frozenset[int]) -> FinishReason:
    if output and output[-1] in eos:
        return "eos"
    return "length" if len(output) >= budget else "context"


@contextmanager
def _silent() -> Iterator[None]:
    """Without the library's advice on settings, which are as they are on purpose."""
    level = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
