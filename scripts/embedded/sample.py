"""Samples from the target in large batches, and keeps its probabilities for the draft to learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

from scripts.embedded.training import Plan, windows

PREFIX, SAMPLED, BATCH = 64, 128, 96
CORPUS_BATCH = 64


class Decoder:
    """The Llama forward pass with a key-value store of fixed size, for batches of equal length."""

    def __init__(self, model: LlamaForCausalLM, batch: int, length: int) -> None:
        config = model.config
        self.model, self.at = model, 0
        self.heads = int(config.num_attention_heads)
        self.size = int(config.head_dim or config.hidden_size // self.heads)
        shape = (len(model.model.layers), 2, batch, self.heads, length, self.size)
        self.store = torch.zeros(shape)
        positions = torch.arange(length)[None]
        cos, sin = model.model.rotary_emb(self.store, positions)
        self.cos, self.sin = cos[0], sin[0]

    def _turn(self, x: torch.Tensor) -> torch.Tensor:
        span = slice(self.at, self.at + x.shape[2])
        half = self.size // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        result: torch.Tensor = x * self.cos[span] + turned * self.sin[span]
        return result

    def _attend(self, index: int, x: torch.Tensor) -> torch.Tensor:
        attention = self.model.model.layers[index].self_attn
        batch, count, _ = x.shape

        def split(projected: torch.Tensor) -> torch.Tensor:
            return projected.view(batch, count, self.heads, self.size).transpose(1, 2)

        query = self._turn(split(attention.q_proj(x)))
        keys, values = self.store[index]
        end = self.at + count
        keys[:, :, self.at : end] = self._turn(split(attention.k_proj(x)))
        values[:, :, self.at : end] = split(attention.v_proj(x))
        if count == 1:
            mixed = self._look_back(query, keys[:, :, :end], values[:, :, :end])
        else:
            mixed = F.scaled_dot_product_attention(
                query, keys[:, :, :end], values[:, :, :end], is_causal=True
            )
        result: torch.Tensor = attention.o_proj(mixed.transpose(1, 2).reshape(batch, count, -1))
        return result

    def _look_back(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Attention of one new token, by plain products: faster here than the fused kernel."""
        scores = (query @ keys.transpose(-1, -2)) * self.size**-0.5
        return torch.softmax(scores, dim=-1) @ values

    @torch.inference_mode()
    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """Feeds tokens (the first call any number, later calls one each); returns the logits."""
        if self.at and tokens.shape[1] > 1:
            raise ValueError("only the first call may feed more than one token")
        inner = self.model.model
        x = inner.embed_tokens(tokens)
        for index, layer in enumerate(inner.layers):
            x = x + self._attend(index, layer.input_layernorm(x))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        self.at += tokens.shape[1]
        logits: torch.Tensor = self.model.lm_head(inner.norm(x))
        return logits


def continue_batch(
    model: LlamaForCausalLM, prefix: torch.Tensor, count: int, seed: int, greedy: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Continues each prefix by so many tokens at temperature 1 (or greedily).

    Returns all tokens and the probabilities of the next token at every place but the last.
    """
    draw = torch.Generator().manual_seed(seed)
    decoder = Decoder(model, len(prefix), prefix.shape[1] + count)
    tokens, rows = prefix, []
    logits = decoder(prefix)
    for place in range(count):
        rows.append(torch.softmax(logits, dim=-1))
        last = rows[-1][:, -1]
        new = (
            last.argmax(-1, keepdim=True) if greedy else torch.multinomial(last, 1, generator=draw)
        )
        tokens = torch.cat((tokens, new), dim=1)
        if place + 1 < count:
            logits = decoder(new)
    return tokens, torch.cat(rows, dim=1)


@torch.inference_mode()
def make_shard(model: LlamaForCausalLM, row: np.ndarray, index: int, seed: int, file: Path) -> None:
    """Writes one shard: continued corpus prefixes and plain corpus windows, with probabilities."""
    name = Plan("shard", steps=0, rate=0.0, batch=BATCH)
    prefix = torch.from_numpy(windows(row, name, index, seed, PREFIX))
    tokens, probs = continue_batch(model, prefix, SAMPLED, seed * 100_003 + index)
    name = Plan("corpus", steps=0, rate=0.0, batch=CORPUS_BATCH)
    plain = torch.from_numpy(windows(row, name, index, seed))
    known = torch.softmax(model(plain[:, :-1], use_cache=False).logits, dim=-1)
    part = file.with_suffix(".part")
    torch.save(
        {
            "sampled": tokens.to(torch.int16),
            "sampled_probs": probs.to(torch.float16),
            "plain": plain.to(torch.int16),
            "plain_probs": known.to(torch.float16),
        },
        part,
    )
    part.replace(file)
