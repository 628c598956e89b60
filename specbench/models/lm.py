"""A causal LM that is fed by position, read and rolled back.

The one file that knows versions of transformers: the name of the cache argument, and how a model
takes its mask. Positions and masks are always explicit, so that nothing depends on what a cache
claims about its own length.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from specbench.errors import UsageError
from specbench.models.kvcache import SlabCache

PREFILL_CHUNK = 512
BAND = 32
"""Widest forward whose mask is kept; wider ones are rare, and their masks large."""
FULL, SLIDING = "full_attention", "sliding_attention"
UNLIMITED = sys.maxsize
ROOM = 256
"""Slots of a reader come in multiples, so that texts of unlike length share them."""


class CausalLM:
    """A loaded model with what the loop has to know about it."""

    def __init__(self, model: Any, label: str) -> None:
        self.model = model
        self.label = label
        self.config = model.config.get_text_config(decoder=True)
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        self.context = context_limit(self.config)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.coarse = False
        """Whether inputs are rounded to few steps, so that rounding in a float may move one."""
        self.num_layers = int(self.config.num_hidden_layers)
        self.weight_bytes, self.matmul_weights = weights_read(model)
        self.held_bytes = held_bytes(model)
        """Of all weights, as loaded."""
        self._cache_name = _cache_argument(model)
        self._windows = windows_of(self.config, label)
        self.make_session: MakeSession = _fresh
        """How sessions come about; a forward mode may keep them."""

    def session(self, rows: int, capacity: int, owner: str = "target") -> Session:
        """A KV state for `rows` rows of `capacity` slots, for one user of the model at a time.

        Sessions of one owner may share their slots: the older one is then of no use any more.
        """
        return self.make_session(self, rows, capacity, owner)

    def forward(self, ids: Tensor, positions: Tensor, mask: Any, cache: Any, keep: int) -> Tensor:
        """Float32 (or float64) logits (B, keep, V) of the last `keep` tokens fed."""
        out = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            use_cache=True,
            logits_to_keep=keep,
            **{self._cache_name: cache},
        )
        logits: Tensor = out.logits
        return logits if logits.dtype == torch.float64 else logits.float()

    def mask(self, positions: Tensor, visible: int) -> Any:
        """What the model takes as its mask: a tensor, or one by layer type.

        Boolean would be converted in every layer, so it is additive in the model's dtype. With one
        query at the last visible slot and no window, a single element says that all is visible.
        """
        if isinstance(self._windows, dict):
            return {k: self._mask(positions, visible, w) for k, w in self._windows.items()}
        return self._mask(positions, visible, self._windows)

    def _mask(self, positions: Tensor, visible: int, window: int | None) -> Tensor:
        slots = torch.arange(visible, device=positions.device)
        at = positions.unsqueeze(1).unsqueeze(-1)
        seen = slots <= at
        if window is not None:
            seen &= slots > at - window
        zero = torch.zeros((), dtype=self.dtype, device=positions.device)
        return torch.where(seen, zero, torch.finfo(self.dtype).min)

    @property
    def windowed(self) -> bool:
        """Whether some layer sees only a window of the past."""
        windows = self._windows.values() if isinstance(self._windows, dict) else [self._windows]
        return any(w is not None for w in windows)

    def everything(self) -> Any:
        """The mask that hides nothing."""
        one = torch.zeros(1, 1, 1, 1, dtype=self.dtype, device=self.device)
        return dict.fromkeys(self._windows, one) if isinstance(self._windows, dict) else one


class Session:
    """The KV state of one model for one batch. To feed a position again is to roll it back."""

    def __init__(self, lm: CausalLM, rows: int, capacity: int) -> None:
        self.lm = lm
        self.limit_ids = False
        """Whether ids above the model's table may come, from the other model of the pair."""
        self.rows = rows
        self.capacity = capacity
        self.cache = SlabCache(lm.num_layers, rows, capacity)
        self._all_visible = lm.everything()
        self._bands: dict[int, Any] = {}
        """By width, the mask of tokens fed behind a full slab: all others are its right ends."""
        self._positions = torch.arange(capacity, device=lm.device)
        self._base = (torch.arange(rows, device=lm.device) * capacity).unsqueeze(-1)

    def feed(
        self, tokens: Tensor, start: int | Tensor, width: int, visible: int, keep: int
    ) -> Tensor:
        """Feed tokens[:, start : start+width] and return logits (B, keep, V) of the last `keep`.

        `start` is an int where all rows stand alike, else a tensor (B,). `visible` is the highest
        position fed by any row plus one, known on the host, so that nothing waits for the device.
        """
        ids, positions = self._where(tokens, start, width)
        slots = positions if self.rows == 1 else positions + self._base[: self.rows]
        if self.limit_ids:
            ids = ids.clamp(max=self.lm.vocab_size - 1)
        self.cache.set_plan(slots.reshape(-1), visible, self.rows)
        mask = self._mask(positions, start, width, visible)
        if visible > self.lm.context:
            positions = positions.clamp(max=self.lm.context - 1)
        return self.lm.forward(ids, positions, mask, self.cache, keep)

    def _mask(self, positions: Tensor, start: int | Tensor, width: int, visible: int) -> Any:
        """The mask of a forward: where all rows stand alike, a view of one that is built once."""
        if not isinstance(start, int) or width > BAND:
            return self.lm.mask(positions, visible)
        if width == 1 and not self.lm.windowed:
            return self._all_visible
        if width not in self._bands:
            last = self.capacity + self._positions[:width].unsqueeze(0)
            self._bands[width] = self.lm.mask(last, self.capacity + width)
        band, first = self._bands[width], self.capacity - start
        if isinstance(band, dict):
            return {kind: mask[..., first:] for kind, mask in band.items()}
        return band[..., first:]

    def _where(self, tokens: Tensor, start: int | Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Ids (B, width) and their positions (B or 1, width)."""
        if isinstance(start, int):
            ids = tokens[:, start : start + width]
            positions = self._positions[start : start + width].unsqueeze(0)
        else:
            positions = (start.unsqueeze(-1) + self._positions[:width]).clamp(0, self.capacity - 1)
            ids = tokens.gather(1, positions)
        return ids, positions

    def prefill(self, tokens: Tensor, length: int) -> None:
        """Feed tokens[:, :length] in chunks.

        Short rows feed what stands behind their text as well: those slots are written anew before
        any query may see them.
        """
        for start, width in self.chunks(length):
            self.feed(tokens, start, width, start + width, keep=1)

    @staticmethod
    def chunks(length: int) -> Iterator[tuple[int, int]]:
        """First position and width of each chunk of a prefill."""
        for start in range(0, length, PREFILL_CHUNK):
            yield start, min(PREFILL_CHUNK, length - start)

    def prepare(self, widths: Sequence[int]) -> None:
        """Make ready for forwards of so many tokens whose last logits are read."""

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Keep only these rows, in this order."""
        self.cache.keep_rows(rows)
        self.rows = len(rows)


MakeSession = Callable[[CausalLM, int, int, str], Session]


def _fresh(lm: CausalLM, rows: int, capacity: int, _owner: str) -> Session:
    return Session(lm, rows, capacity)


class Reader:
    """Reads texts with one model, one row; a prompt that several texts share is fed once."""

    def __init__(self, lm: CausalLM, *, limit_ids: bool = False) -> None:
        self.lm = lm
        self._limit_ids = limit_ids
        self._session: Session | None = None
        self._prefix: list[int] = []

    def along(
        self, tokens: Tensor, start: int, end: int, chunk: int
    ) -> Iterator[tuple[int, Tensor]]:
        """Logits (n, V) for positions start … end − 1 of one text (1, ≥ end), each from its past.

        Yields (first position, logits) chunk by chunk; a position without a past has none, so
        `start` is at least 1. Chunks begin at `start`, so that a text's numbers do not depend on
        what was read before.
        """
        session = self._fed(tokens, start - 1, end)
        for at in range(start, end, chunk):
            width = min(chunk, end - at)
            yield at, session.feed(tokens, at - 1, width, at + width - 1, keep=width)[0]

    def _fed(self, tokens: Tensor, length: int, end: int) -> Session:
        """A session that holds the first `length` tokens and has room for the rest."""
        prefix = tokens[0, :length].tolist()
        if self._session is None or self._session.capacity < end:
            self._session = Session(self.lm, 1, -(-end // ROOM) * ROOM)
            self._session.limit_ids = self._limit_ids
            self._prefix = []
        if self._prefix != prefix:
            self._prefix = []
            self._session.prefill(tokens, length)
            self._prefix = prefix
        return self._session


def weights_read(model: Any) -> tuple[int, int]:
    """Bytes of the weights that a forward reads, and how many of them a token is multiplied with.

    Tables of which a token reads one row count only where they are the head as well. To be asked
    for before a forward mode stores weights in another form.
    """
    head = model.get_output_embeddings().weight.data_ptr()
    tables = {
        part.weight.data_ptr() for part in model.modules() if isinstance(part, torch.nn.Embedding)
    }
    read = [one for one in model.parameters() if one.data_ptr() not in tables - {head}]
    return sum(one.nbytes for one in read), sum(one.numel() for one in read if one.dim() > 1)


def held_bytes(model: Any) -> int:
    """Bytes of a model's parameters and buffers, shared ones once."""
    tensors = {t.data_ptr(): t.nbytes for t in (*model.parameters(), *model.buffers())}
    return sum(tensors.values())


def context_limit(config: Any) -> int:
    """Tokens that the model's positions allow, or a very large number where there is no limit."""
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return UNLIMITED


def _cache_argument(model: Any) -> str:
    """`cache` from 5.2x on, `past_key_values` before; the wrong one would be swallowed silently."""
    names = inspect.signature(model.forward).parameters
    for name in ("cache", "past_key_values"):
        if name in names and not getattr(model, "_is_stateful", False):
            return name
    raise UsageError(
        "the target's cache cannot be rolled back, so it cannot be measured",
        where=f"{type(model).__name__} keeps a state that is no key-value cache",
        hint="a decoder-only model with attention",
    )


def windows_of(config: Any, label: str) -> int | dict[str, int | None] | None:
    """The sliding window of all layers, or one by layer type; refuses layers that keep a state."""
    window: Any = getattr(config, "sliding_window", None)
    kinds = sorted(set(getattr(config, "layer_types", None) or ()))
    unknown = [k for k in kinds if k not in (FULL, SLIDING)]
    if unknown:
        raise UsageError(
            f"{label} cannot be rolled back, so it cannot be measured",
            where=f"layers of type {', '.join(unknown)} keep a state that cannot be undone",
            hint="a model whose layers are all attention",
        )
    if len(kinds) > 1:
        return {FULL: None, SLIDING: int(window)}
    if kinds:
        return int(window) if kinds == [SLIDING] else None
    return int(window) if window and getattr(config, "use_sliding_window", True) else None
