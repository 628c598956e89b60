"""Trains the byte-level BPE tokenizer and turns the chapters into tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from scripts.embedded.sources import Chapter

VOCABULARY = 1024
END = "<|endoftext|>"
CONTEXT = 1024


def train(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Trains the tokenizer on the training texts only."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def load(folder: Path) -> PreTrainedTokenizerFast:
    """Loads the tokenizer that was saved in a folder."""
    return PreTrainedTokenizerFast.from_pretrained(folder)


def encode(tokenizer: PreTrainedTokenizerFast, chapters: Sequence[Chapter]) -> np.ndarray:
    """Returns the chapters as one row of tokens, each begun and the last ended by the end token."""
    end = tokenizer.convert_tokens_to_ids(END)
    row: list[int] = [end]
    for chapter in chapters:
        row += tokenizer.encode(chapter.text, add_special_tokens=False)
        row.append(end)
    return np.asarray(row, dtype=np.int64)
