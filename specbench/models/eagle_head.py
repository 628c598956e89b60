"""A one-layer head on a target's hidden states (EAGLE, Li et al. 2024, arXiv 2401.15077).

At position j it reads the token there and the target's hidden state of the position before, j − 1
(zeros at the first), and says what the hidden state at j will be: the target's output head then
gives the law of token j + 1. In a chain its own states stand for the target's.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import silu

from specbench.errors import PairRefused
from specbench.models.attention import slab_attention
from specbench.models.lm import CausalLM, Session, context_limit

FORMAT = 1
KEY = "eagle"
"""Of `config.json`: the shape of the head."""
IDS = "draft_ids"
WEIGHTS = "model.safetensors"

Keep = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Takes keys and values (B, heads, n, dim) of what is fed, and gives back all that is read."""
Rope = tuple[Tensor, Tensor]
"""Cosines and sines (B or 1, 1, n, dim) of the positions fed."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a head."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    eps: float = 1e-6
    theta: float = 10_000.0


def shape_for(config: Any) -> Shape:
    """The shape that goes with a target: as one of its layers."""
    hidden, heads = int(config.hidden_size), int(config.num_attention_heads)
    size = int(getattr(config, "head_dim", None) or hidden // heads)
    between = getattr(config, "intermediate_size", None) or 4 * hidden
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    return Shape(hidden, heads, kv_heads, size, int(between))


class _Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._dim = shape.head_dim
        out, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, out, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv, bias=False)
        self.o_proj = nn.Linear(out, shape.hidden, bias=False)

    def forward(self, x: Tensor, rope: Rope, mask: Tensor | None, keep: Keep) -> Tensor:
        q, k, v = (self._split(part(x)) for part in (self.q_proj, self.k_proj, self.v_proj))
        k, v = keep(_turned(k, rope), v)
        out, _ = slab_attention(self, _turned(q, rope), k, v, mask)
        found: Tensor = self.o_proj(out.flatten(2))
        return found

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self._dim).transpose(1, 2)


def _turned(x: Tensor, rope: Rope) -> Tensor:
    """Rotary positions."""
    cos, sin = rope
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class _Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden, shape.eps)
        self.self_attn = _Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, shape.eps)
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor, rope: Rope, mask: Tensor | None, keep: Keep) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope, mask, keep)
        y = self.post_attention_layernorm(x)
        found: Tensor = x + self.down_proj(silu(self.gate_proj(y)) * self.up_proj(y))
        return found


class EagleHead(nn.Module):
    """Two inputs into one, a decoder layer, and a norm that gives a state as the target's are."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_norm = nn.RMSNorm(shape.hidden, shape.eps)
        self.fc = nn.Linear(2 * shape.hidden, shape.hidden)
        self.layers = nn.ModuleList([_Layer(shape)])
        self.norm = nn.RMSNorm(shape.hidden, shape.eps)

    def forward(
        self, embedded: Tensor, states: Tensor, rope: Rope, mask: Tensor | None, keep: Keep
    ) -> Tensor:
        """States (B, n, H) at the positions of the tokens embedded, from those before them."""
        x = self.fc(torch.cat([self.embed_norm(embedded), states], dim=-1))
        found: Tensor = self.norm(self.layers[0](x, rope, mask, keep))
        return found

    def rope(self, positions: Tensor) -> Rope:
        """Cosines and sines (n, dim) of positions (n,)."""
        dim, weight = self.shape.head_dim, self.fc.weight
        steps = torch.arange(0, dim, 2, dtype=torch.float64, device=weight.device) / dim
        angles = positions.double().unsqueeze(-1) * self.shape.theta**-steps
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(weight.dtype), angles.sin().to(weight.dtype)


class HeadSession(Session):
    """The KV state of a head for one batch, over its text."""

    def __init__(self, target: CausalLM, head: EagleHead, rows: int, capacity: int) -> None:
        lm = copy.copy(target)
        # One layer that sees all of the past, whatever the target's layers see.
        lm.num_layers, lm._windows = 1, None
        super().__init__(lm, rows, capacity)
        self.head = head
        self._embed = target.model.get_input_embeddings()
        self._cos, self._sin = head.rope(self._positions)

    def states(
        self, tokens: Tensor, before: Tensor, start: int | Tensor, width: int, visible: int
    ) -> Tensor:
        """States (B, width, H) at positions start …, from those one position before each."""
        ids, positions = self._where(tokens, start, width)
        slots = positions if self.rows == 1 else positions + self._base[: self.rows]
        self.cache.set_plan(slots.reshape(-1), visible, self.rows)
        mask = self._mask(positions, start, width, visible)
        rope = self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)
        found: Tensor = self.head(self._embed(ids), before, rope, mask, self.cache.slabs[0].update)
        return found


def save_head(folder: Path, head: EagleHead, ids: Tensor | None, target: CausalLM) -> None:
    """Write config and weights; the tokenizer that stands beside them is the target's."""
    shape = asdict(head.shape)
    config = {
        "architectures": [type(head).__name__],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": shape["hidden"],
        "vocab_size": target.vocab_size,
        "max_position_embeddings": context_limit(target.config),
        KEY: {"format": FORMAT, **shape, "draft_vocab": None if ids is None else len(ids)},
    }
    tensors = {name: t.detach().cpu().contiguous() for name, t in head.state_dict().items()}
    if ids is not None:
        tensors[IDS] = ids.cpu()
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    save_file(tensors, folder / WEIGHTS)


def holds_head(folder: Path) -> bool:
    """Whether a folder's config is that of a head, and of no model."""
    try:
        return KEY in json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def shape_in(folder: Path, hidden: int, where: str) -> Shape:
    """The shape of the head in a folder, refused where there is none, or one of another target."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        told = dict(config[KEY])
        version = told.pop("format")
        told.pop("draft_vocab")
        shape = Shape(**told)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as err:
        raise PairRefused(
            f"{folder} holds no EAGLE head",
            where=where,
            hint="specbench train-draft --kind eagle makes one; a model is hf:",
        ) from err
    if version != FORMAT:
        raise PairRefused(
            f"{folder} holds an EAGLE head of another version",
            where=f"{where}: format {version}, this is {FORMAT}",
            hint="specbench train-draft --kind eagle",
        )
    if shape.hidden != hidden:
        raise PairRefused(
            "the EAGLE head was made for another target",
            where=f"{where}: for states of {shape.hidden} numbers, the target has {hidden}",
            hint="the target that it was trained for",
        )
    return shape


def load_head(folder: Path, target: CausalLM, where: str) -> tuple[EagleHead, Tensor | None]:
    """The head in a folder, in the target's dtype, and the ids that it can draft if not all."""
    shape = shape_in(folder, int(target.config.hidden_size), where)
    head = EagleHead(shape).to(device=target.device, dtype=target.dtype)
    try:
        tensors = load_file(folder / WEIGHTS)
        ids = tensors.pop(IDS, None)
        head.load_state_dict(tensors)
    except (OSError, SafetensorError, RuntimeError) as err:
        raise PairRefused(
            f"the weights in {folder} are not those of its config.json",
            where=f"{where}: {str(err).strip().splitlines()[-1].strip()}",
            hint="the whole folder, as specbench train-draft wrote it",
        ) from err
    if ids is not None and not _are_ids(ids, target.vocab_size):
        raise PairRefused(
            f"the draft vocabulary in {folder} is not part of the target's",
            where=f"{where}: ids from {int(ids.min())} to {int(ids.max())}, the target has "
            f"{target.vocab_size}"
            if ids.numel()
            else f"{where}: it is empty",
            hint="the target that it was trained for",
        )
    head = head.eval().requires_grad_(False)
    return head, None if ids is None else ids.to(target.device)


def _are_ids(ids: Tensor, vocab: int) -> bool:
    """Whether they are ids of a vocabulary, ascending, each once."""
    if ids.dim() != 1 or not ids.numel() or ids.dtype != torch.int64:
        return False
    return bool((ids[1:] > ids[:-1]).all()) and int(ids[0]) >= 0 and int(ids[-1]) < vocab
