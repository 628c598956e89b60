"""All that is settled before the first cell: models, pairs, prompts, self-tests.

What cannot be measured is refused here, so that a sweep does not find it out after an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from specbench.engines.base import Engine
from specbench.engines.failures import is_out_of_memory, reason_of
from specbench.engines.probe import step_seconds
from specbench.engines.selftest import short
from specbench.engines.torch_engine import TorchEngine
from specbench.errors import CellRefused, PairRefused, SpecbenchError, UsageError
from specbench.kinds import kind_told, simulated_time
from specbench.latency.roofline import Shape
from specbench.measure.memory_check import tell_memory
from specbench.measure.opening import draft_ref, make_engine, own_loop, pair_here
from specbench.models.loading import resolve
from specbench.models.shapes import shape_of
from specbench.prompt_sets.long_prompts import prepare_lengths
from specbench.prompt_sets.prompt_rows import RawPrompt
from specbench.prompt_sets.prompts import encode, prepare
from specbench.records import Cell, Prompt, Sampling
from specbench.settings.engine_limits import refuse_draft
from specbench.settings.recipe import Block, Recipe, expand
from specbench.settings.recipe_specs import DraftSpec
from specbench.settings.recipe_values import CONFIG
from specbench.wording import count

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ready:
    """A target, drafts that can be measured with it, and prompts."""

    recipe: Recipe
    engine: Engine
    prompts: tuple[Prompt, ...]
    blocks: tuple[Block, ...]
    drafts: dict[str, dict[str, object]]
    """What is known of each draft that can be measured, by label."""
    refused: dict[str, str]
    """Drafts that were dropped, with the reason."""
    configs: dict[str, Any]
    """The drafts' own configs, where they have one."""
    by_length: dict[int, tuple[Prompt, ...]] = field(default_factory=dict)
    """The prompts at each context length, if lengths were asked for; `prompts` are the longest."""
    shapes: dict[str, Shape | None] = field(default_factory=dict)
    """What a forward of each draft reads and computes, where that is known."""

    @property
    def own(self) -> TorchEngine:
        """The engine, where it is our own loop; else refused."""
        return own_loop(self.engine)

    def prompts_at(self, context_length: int | None) -> tuple[Prompt, ...]:
        """The prompts of a block with this context length."""
        return self.prompts if context_length is None else self.by_length[context_length]


def get_ready(
    recipe: Recipe,
    *,
    keep_going: bool = False,
    say: Say = lambda _: None,
    fill_batches: bool = True,
) -> Ready:
    """Open everything once and refuse what cannot be measured, also a batch of too few prompts."""
    refuse_random(recipe)
    engine = make_engine(recipe)
    if not keep_going:
        _find_drafts(recipe)
    engine.open_target()
    alone = engine.context
    found = _found(recipe, engine)
    for note in found.notes:
        say(f"note: {note}")
    drafts: dict[str, dict[str, object]] = {}
    refused: dict[str, str] = {}
    configs: dict[str, Any] = {}
    shapes: dict[str, Shape | None] = {}
    for spec in recipe.drafts:
        try:
            drafts[spec.label] = _check(engine, recipe, spec, found.first)
            refuse_long(engine, recipe, spec.label)
            lm = getattr(getattr(pair_here(engine), "draft", None), "lm", None)
            configs[spec.label] = getattr(lm, "config", None)
            shared = getattr(getattr(engine, "draft", None), "shares_weights", False)
            shapes[spec.label] = None if lm is None else shape_of(lm, shared=shared)
            _tell_context(engine, spec, found.first, alone, say)
        except SpecbenchError as err:
            if not keep_going:
                raise
            refused[spec.label] = err.what
            say(f"dropped {spec.label}: {err.what}")
    if not drafts:
        raise UsageError("no draft is left to measure", hint="specbench validate a pair first")
    _tell_threads(engine, recipe, say)
    # Our own loop writes the histories where it can, so that they are the same for other engines.
    writer = pair_here(engine) or engine
    prompts = with_turns(writer, found.raw, found.first, say) if found.raw else found.first
    if fill_batches:
        _check_batches(recipe, len(prompts), say)
    blocks = tuple(b for b in expand(recipe) if b.draft.label in drafts)
    longest = max(len(p.token_ids) for p in prompts) + recipe.sampling.max_new_tokens
    if isinstance(engine, TorchEngine):
        tell_memory(engine, shapes, blocks, longest, say)
    parts = (drafts, refused, configs, found.by_length, shapes)
    return Ready(recipe, engine, prompts, blocks, *parts)


@dataclass(frozen=True, slots=True)
class _Found:
    """Prompts before any model has read them."""

    raw: tuple[RawPrompt, ...]
    """Empty for prompts of a set length, which have no turns."""
    first: tuple[Prompt, ...]
    notes: tuple[str, ...]
    by_length: dict[int, tuple[Prompt, ...]] = field(default_factory=dict)


def _found(recipe: Recipe, engine: Engine) -> _Found:
    """The prompts that a recipe asks for, as tokens."""
    lengths = recipe.measure.context_length
    if not lengths:
        plain = prepare(recipe.prompts, engine.tokenizer)
        return _Found(plain.raw, plain.first, plain.notes)
    refuse_long(engine, recipe, engine.settings.target_label)
    found = prepare_lengths(recipe.prompts, engine.tokenizer, lengths)
    return _Found((), found.by_length[max(lengths)], found.notes, found.by_length)


def refuse_random(recipe: Recipe) -> None:
    """Random weights are drafted for by a synthetic draft alone, which runs their shape alone."""
    random = recipe.target.ref.startswith(CONFIG)
    for spec in recipe.drafts:
        if random and spec.kind != "synthetic":
            raise UsageError(
                f"--draft {spec.label}: the target's weights are random, no model is near",
                hint="--draft synthetic:alpha=0.8,shape=CONFIG, or a real --target",
            )
        if not random and "shape" in spec.options:
            raise UsageError(
                f"--draft {spec.label}: a shape goes with a target of random weights alone",
                hint="--target config:FILE, or --draft synthetic:alpha=0.8,c=0.1",
            )


def refuse_long(engine: Engine, recipe: Recipe, label: str) -> None:
    """Refuse a context length that leaves no room for the new tokens, in the target or the pair."""
    for length in recipe.measure.context_length or ():
        tokens, limit = recipe.sampling.max_new_tokens, engine.context
        if length + tokens > limit:
            raise UsageError(
                f"--context-length {length}: with {count(tokens, 'new token')} it is longer than "
                f"the {limit} that {label} can see",
                hint=f"--context-length {limit - tokens} at most"
                if limit > tokens
                else f"--max-new-tokens below {limit - length}"
                if limit > length + 1
                else "a model with a longer context",
            )


def _find_drafts(recipe: Recipe) -> None:
    """Refuse a draft that is plainly not there before the target is read."""
    for spec in recipe.drafts:
        if spec.model:
            resolve(spec.model, "--draft", spec.kind)


def _check(
    engine: Engine, recipe: Recipe, spec: DraftSpec, prompts: Sequence[Prompt]
) -> dict[str, object]:
    refuse_draft(engine.name, spec, recipe.gamma)
    engine.open_draft(draft_ref(spec))
    gamma = max(recipe.gamma)
    try:
        known = engine.examine(prompts[:1], max(1, gamma))
    except (RuntimeError, MemoryError) as err:
        if not is_out_of_memory(err):
            raise
        raise PairRefused(
            "the pair does not fit into memory",
            where=f"--draft {spec.label}: {reason_of(err)}",
            hint="a smaller --dtype, or smaller models",
        ) from err
    laws = {b.sampling for b in expand(recipe)}
    probes = [Cell(spec.label, gamma, law) for law in sorted(laws, key=repr)]
    try:
        engine.warm_up(probes, short(prompts[:1]))
    except CellRefused as err:
        where = err.where or f"--draft {spec.label}"
        raise PairRefused(err.what, where=where, hint=err.hint) from err
    simulated = simulated_time(spec.kind, spec.options)
    return {
        "kind": kind_told(spec.kind, spec.options),
        **known,
        "simulated_c": float(spec.options.get("c", 0.0)) if simulated else None,
    }


def _tell_context(
    engine: Engine, spec: DraftSpec, prompts: Sequence[Prompt], alone: int, say: Say
) -> None:
    """Say so if the draft's shorter context will end texts that the target could go on with."""
    longest = max(len(p.token_ids) for p in prompts) + engine.settings.max_new_tokens
    pair = engine.context
    if pair < min(alone, longest):
        say(
            f"warning: {spec.label} sees {pair} tokens and {engine.settings.target_label} {alone}: "
            f"prompt and output together end at {pair} in all cells of {spec.label}"
        )


def _tell_threads(engine: Engine, recipe: Recipe, say: Say) -> None:
    """Say so if the default number of threads is slower than one, as on busy cores."""
    many = engine.settings.threads or 1
    if not isinstance(engine, TorchEngine) or recipe.measure.threads or many == 1:
        return
    if engine.device.type != "cpu":
        return
    slow, fast = step_seconds(engine, many), step_seconds(engine, 1)
    engine.set_threads(many)
    if slow > 1.1 * fast:
        say(
            f"warning: a step takes {1000 * slow:.1f} ms with {many} threads and "
            f"{1000 * fast:.1f} with one: --threads 1"
        )


def _check_batches(recipe: Recipe, prompts: int, say: Say) -> None:
    """Refuse a batch that the prompts cannot fill, and tell of one that they fill in part."""
    for size in recipe.measure.batch_size:
        if size > prompts:
            raise UsageError(
                f"--batch-size {size}: no more than {count(prompts, 'prompt')}",
                where="a batch that is not full would be measured under a wrong name",
                hint=f"--num-prompts {size}, or --batch-size {prompts}",
            )
        if prompts % size:
            say(f"note: at batch {size} the last batch has {count(prompts % size, 'prompt')}")


def with_turns(
    engine: Engine, raw: Sequence[RawPrompt], first: Sequence[Prompt], say: Say
) -> tuple[Prompt, ...]:
    """All turns as prompts of their own; replies come from one untimed greedy run of the target.

    So the history is the same in every cell, and cells stay paired.
    """
    cell = Cell("", 0, Sampling(0.0))
    out: list[Prompt] = []
    for row, prompt in zip(raw, first, strict=True):
        out.append(prompt)
        history: list[str] = []
        for _ in row.turns[1:]:
            (reply,) = engine.generate(cell, [out[-1]], 0)
            if reply.status != "ok":
                say(f"note: {out[-1].prompt_id} gave no reply, its later turns are left out")
                break
            history.append(engine.text(reply.token_ids))
            out.append(
                encode(row, engine.tokenizer, raw_prompt=not prompt.messages, history=history)
            )
    return tuple(out)
