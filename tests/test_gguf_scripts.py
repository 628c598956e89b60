"""The scripts that write GGUF files: the same weights, and layers left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specbench.settings.places import EMBEDDED_FOLDER

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

from scripts.cut_gguf import cut  # noqa: E402
from scripts.llama_gguf import convert  # noqa: E402

TEXT = "It was a dark night, “and” the captain said:\n\n no 7"


@pytest.mark.slow
def test_a_converted_folder_is_the_same_model_and_tokenizer(tmp_path: Path) -> None:
    convert(EMBEDDED_FOLDER / "draft", tmp_path / "d.gguf")
    named = {"gguf_file": "d.gguf"}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, **named)
    ours = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER / "draft")
    ids = ours(TEXT)["input_ids"]
    assert tokenizer(TEXT)["input_ids"] == ids
    models = (
        AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER / "draft", dtype=torch.float32),
        AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, **named),
    )
    with torch.inference_mode():
        a, b = (model(torch.tensor([ids])).logits for model in models)
    assert float((a - b).abs().max()) < 1e-4
    assert float(a.std()) > 0.1


def test_a_cut_file_has_the_other_layers_as_they_were(tmp_path: Path) -> None:
    whole, short = tmp_path / "t.gguf", tmp_path / "c.gguf"
    convert(EMBEDDED_FOLDER / "target", whole, "Q8_0")
    cut(whole, short, {0, 3, 30})
    one, other = gguf.GGUFReader(whole), gguf.GGUFReader(short)
    before = {tensor.name: tensor for tensor in one.tensors}
    after = {tensor.name: tensor for tensor in other.tensors}
    kept = [layer for layer in range(32) if layer not in (0, 3, 30)]
    assert int(other.fields["llama.block_count"].contents()) == 29
    assert len(before) - len(after) == 3 * 9
    for at, layer in enumerate(kept):
        old, new = (f"blk.{n}.ffn_down.weight" for n in (layer, at))
        assert np.array_equal(before[old].data, after[new].data)
        assert before[old].tensor_type == after[new].tensor_type
    for name, field in one.fields.items():
        if not name.startswith("GGUF.") and name != "llama.block_count":
            assert other.fields[name].contents() == field.contents(), name


def test_layers_that_are_not_there_are_refused(tmp_path: Path) -> None:
    convert(EMBEDDED_FOLDER / "draft", tmp_path / "d.gguf")
    for layers in ({1}, {0}, {-1}):
        with pytest.raises(SystemExit):
            cut(tmp_path / "d.gguf", tmp_path / "c.gguf", layers)
    assert not (tmp_path / "c.gguf").exists()
