"""`torch`: our own loop over transformers' models, in this process."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from specbench.drafts import Context, Draft, open_draft
from specbench.engines.base import DraftRef, SelfTest, Settings
from specbench.engines.failures import failed, is_out_of_memory, reason_of, too_long
from specbench.engines.loop import Job, RowResult, decode
from specbench.engines.rows import Limits
from specbench.engines.selftest import self_test, short
from specbench.errors import CellFailed, CellRefused, PairRefused, SpecbenchError
from specbench.models import environment, loading
from specbench.models.forwards import Applied, apply_mode
from specbench.models.lm import CausalLM
from specbench.models.packed import Known
from specbench.models.random_models import check_table
from specbench.models.sampling import uniforms
from specbench.models.timing import Clock, MemoryMeter, release_heap
from specbench.records import Cell, Generation, Prompt
from specbench.settings.forward_modes import check_mode

WARM_UP_TOKENS = 12


class TorchEngine:
    """One target, one draft at a time."""

    name = "torch"

    def __init__(self, settings: Settings, device_map: str | None = None) -> None:
        check_mode(settings.forward, max(settings.gammas, default=0))
        self.settings = settings
        self.device_map = device_map
        """Of a target that is only loaded here, over several devices, and not run by our loop."""
        self.device = loading.pick_device(settings.device)
        loading.check_dtype(settings.dtype, self.device)
        loading.check_dtype(settings.draft_dtype, self.device, "--draft-dtype")
        if settings.threads:
            self.set_threads(settings.threads)
        if self.device.type == "cuda":
            # cuDNN would build a plan for every new length of a growing cache.
            torch.backends.cuda.enable_cudnn_sdp(False)
        self.target: CausalLM
        self.tokenizer: Any = None
        self.draft: Draft | None = None
        self.forwards: dict[str, Applied] = {}
        """What the forward mode came to, by label of the model."""
        self._layouts: Known = {}
        self._opened: DraftRef | None = None
        self.eos: frozenset[int] = frozenset()

    def open_target(self) -> None:
        """Load the target, its tokenizer and its EOS ids."""
        source = loading.resolve(self.settings.target, "--target")
        trust = self.settings.trust_remote_code
        self.tokenizer = loading.load_tokenizer(source, trust_remote_code=trust)
        self.meter = MemoryMeter(self.device)  # a large tokenizer's 40 MB are not the models'
        model = loading.load_model(
            source,
            device=self.device,
            dtype=self.settings.dtype,
            trust_remote_code=trust,
            device_map=self.device_map,
        )
        check_table(self.tokenizer, model, f"--target {self.settings.target}")
        self.target = self._prepared(CausalLM(model, self.settings.target_label))
        if not self.settings.ignore_eos:
            self.eos = loading.eos_ids(model, self.tokenizer)

    def _prepared(self, lm: CausalLM) -> CausalLM:
        """A model just loaded, in the forward mode of the run."""
        self.forwards[lm.label] = apply_mode(lm, self.settings.forward, self._layouts)
        return lm

    def open_draft(self, draft: DraftRef) -> None:
        """Load a draft in place of the last one; the one that is there already stays."""
        if draft == self._opened:
            return
        self._free_draft()
        context = Context(
            self.target,
            self.tokenizer,
            self.device,
            self.settings.draft_dtype or self.settings.dtype,
            self.settings.trust_remote_code,
            self._prepared,
        )
        self.draft = open_draft(draft.kind, draft.ref, dict(draft.options), draft.label, context)
        self._opened = draft

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The target without its draft for a moment: a draft's context then limits nothing."""
        draft, self.draft = self.draft, None
        try:
            yield
        finally:
            self.draft = draft

    def describe(self) -> dict[str, str]:
        """Device, dtypes and such, as files name them."""
        return {
            "device": str(self.device),
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "draft_dtype": self.draft.dtype if self.draft else "",
            "threads": str(torch.get_num_threads()),
        }

    @property
    def context(self) -> int:
        """Tokens of prompt and output together: the smaller limit of the pair."""
        return min(self.target.context, self.draft.context if self.draft else self.target.context)

    def self_test(self, prompts: Sequence[Prompt], batch_size: int, gamma: int) -> SelfTest:
        """Rollback against recomputation, for both models, at this batch size."""
        texts = [p.token_ids for p in prompts[:batch_size]]
        texts = (list(texts) * batch_size)[:batch_size]
        models = [self.target, *self._draft_models()]
        try:
            return self_test(models, texts, gamma, self.target.vocab_size)
        except SpecbenchError:
            raise
        except Exception as err:  # a model's own code may raise anything
            if is_out_of_memory(err):
                raise
            raise PairRefused(
                f"the self-test failed, so the pair cannot be measured ({reason_of(err)})",
                where=", ".join(m.label for m in models),
                hint="a decoder-only model with attention; --debug shows where",
            ) from err

    def examine(self, prompts: Sequence[Prompt], gamma: int) -> dict[str, object]:
        """Rollback against recomputation, one text at a time, and what the draft declares."""
        test = self.self_test(short(prompts), 1, gamma)
        assert self.draft is not None
        return {
            "law": self.draft.law,
            "own_length": self.draft.own_length,
            "dtype": self.draft.dtype,
            "numeric_floor": test.numeric_floor,
            "rollback_difference": test.worst,
            "memory_mb": self.draft.nbytes() / 2**20,
        }

    def prepare(self, cells: Sequence[Cell], prompts: Sequence[Prompt]) -> None:
        """Reserve slots, and self-test at the batch size of the cells."""
        gammas = [cell.gamma for cell in cells]
        self.reserve(prompts, gammas)
        size = cells[0].batch_size
        if size > 1:
            self.self_test(short(prompts[:size]), size, max(*gammas, 1))

    def facts(self) -> dict[str, object]:
        """The environment says it all."""
        return {}

    def reserve(self, prompts: Sequence[Prompt], gammas: Sequence[int], more: int = 0) -> None:
        """Say what is coming, so that modes with fixed shapes prepare them once."""
        longest = max(len(p.token_ids) for p in prompts)
        slots = longest + self.settings.max_new_tokens + 2 * max(gammas) + 2 + more
        for applied in self.forwards.values():
            if applied.pool is not None:
                applied.pool.reserve(slots)

    def set_threads(self, count: int) -> None:
        """CPU threads of torch, in this process."""
        environment.set_threads(count)

    def _draft_models(self) -> list[CausalLM]:
        lm = getattr(self.draft, "lm", None)
        return [lm] if lm is not None and lm is not self.target else []

    def warm_up(self, cells: Sequence[Cell], prompts: Sequence[Prompt]) -> None:
        """Run every shape once, outside all counts. A failure here is found again when measured."""
        for cell in cells:
            try:
                self._decode(cell, self._fitting(prompts), 0, max(WARM_UP_TOKENS, cell.gamma + 2))
            except Exception:  # a model's own code may raise anything
                self._free_cache()
                continue
            self._refuse_problem(cell)

    def _fitting(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        return [p for p in prompts if len(p.token_ids) < self.context]

    def generate(self, cell: Cell, prompts: Sequence[Prompt], repeat: int) -> list[Generation]:
        """One batch. What failed is told by its status, and the sweep can go on."""
        fitting = self._fitting(prompts)
        self.meter.reset()
        try:
            results = self._decode(cell, fitting, repeat, self.settings.max_new_tokens)
        except CellFailed as err:
            return failed(prompts, repeat, "error", err.what)
        except Exception as err:  # a model's own code may raise anything
            if not is_out_of_memory(err):
                return failed(prompts, repeat, "error", reason_of(err))
            self._free_cache()
            return failed(prompts, repeat, "oom", f"out of memory at batch {len(prompts)}")
        self._refuse_problem(cell)
        if self.draft and cell.gamma and not self.draft.finite():
            return failed(prompts, repeat, "error", "the draft's logits not finite (W14)")
        done = dict(zip((p.prompt_id for p in fitting), results, strict=True))
        peak = self.meter.peak_mb()
        return [self._generation(p, repeat, done.get(p.prompt_id), peak) for p in prompts]

    def _refuse_problem(self, cell: Cell) -> None:
        problem = self.draft.problem() if self.draft and cell.gamma else None
        if problem:
            raise CellRefused(problem)

    def text(self, ids: Sequence[int]) -> str:
        """Token ids as text, special tokens left out."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def _decode(
        self, cell: Cell, prompts: Sequence[Prompt], repeat: int, max_new_tokens: int
    ) -> list[RowResult]:
        if not prompts:
            return []
        draft = self.draft if cell.gamma else None
        return decode(self.job(cell, prompts, repeat, max_new_tokens), self.target, draft)

    def job(
        self,
        cell: Cell,
        prompts: Sequence[Prompt],
        repeat: int,
        max_new_tokens: int,
        clock: Clock | None = None,
    ) -> Job:
        """One batch of a cell, as the loop decodes it."""
        draft = self.draft if cell.gamma else None
        vocab = draft.vocab_size if draft else None
        limits = Limits(max_new_tokens, self.context, self.eos, vocab)
        streams = [self._streams(p.prompt_id, repeat, cell.gamma, max_new_tokens) for p in prompts]
        return Job(
            [p.token_ids for p in prompts],
            cell.gamma,
            cell.sampling,
            limits,
            torch.stack(streams).to(self.device),
            clock=clock,
        )

    def _streams(self, prompt_id: str, repeat: int, gamma: int, cycles: int) -> torch.Tensor:
        """Uniforms (cycles, 2γ + 1) of one row: drafting, keeping, the token after."""
        sizes = (("draft", gamma), ("accept", gamma), ("correction", 1))
        seed = self.settings.seed
        return torch.cat(
            [uniforms(seed, prompt_id, repeat, name, (cycles, n)) for name, n in sizes], dim=1
        )

    def _generation(
        self, prompt: Prompt, repeat: int, result: RowResult | None, peak: float
    ) -> Generation:
        if result is None:
            return too_long(prompt, repeat, self.context)
        return Generation(
            prompt.prompt_id,
            repeat,
            prompt.token_ids,
            finish_reason=result.row.finish,
            token_ids=tuple(result.row.output),
            cycles=result.cycles,
            prefill_s=result.prefill_s,
            cpu_s=result.cpu_s,
            peak_memory_mb=peak,
            notes=self._notes(result),
        )

    def _notes(self, result: RowResult) -> tuple[str, ...]:
        if not result.row.draft_ended:
            return ()
        return ("a token above the draft's table ended drafting",)

    def _free_draft(self) -> None:
        self._opened = None
        if self.draft is not None:
            self.draft = None
            self._free_cache()

    def _free_cache(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            release_heap()

    def close(self) -> None:
        """Free the models."""
        self.draft = self._opened = None
        self.__dict__.pop("target", None)
        self._free_cache()
