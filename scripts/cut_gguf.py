"""A draft from a GGUF file: the same weights, as they are stored, without some layers.

Example: python -m scripts.cut_gguf SmolLM2-135M-Instruct.Q4_1.gguf cut26.gguf 12,15,18,21
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import gguf

BLOCK = re.compile(r"blk\.(\d+)\.")
OWN = ("GGUF.", "general.architecture")
"""Keys that the writer writes itself."""


def main(argv: list[str] | None = None) -> None:
    """Cut one file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("layers", help="numbers from 0 of those to leave out, such as 12,15")
    options = parser.parse_args(argv)
    cut(options.source, options.target, {int(layer) for layer in options.layers.split(",")})
    print(f"{options.target}: {options.target.stat().st_size / 1e6:.1f} MB")


def cut(source: Path, target: Path, left_out: set[int]) -> None:
    """Write `target` without these layers; all else stays as it is."""
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    blocks = f"{architecture}.block_count"
    count = int(reader.fields[blocks].contents())
    if not left_out < set(range(count)):
        raise SystemExit(f"{source} has the layers 0 to {count - 1}")
    kept = [layer for layer in range(count) if layer not in left_out]
    writer = gguf.GGUFWriter(str(target), architecture)
    for name, field in reader.fields.items():
        if not name.startswith(OWN):
            _copy(writer, name, field, len(kept) if name == blocks else field.contents())
    for tensor in reader.tensors:
        found = BLOCK.match(tensor.name)
        if found and int(found[1]) in left_out:
            continue
        name = tensor.name
        if found:
            name = f"blk.{kept.index(int(found[1]))}.{name[found.end() :]}"
        writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy(writer: Any, name: str, field: Any, value: object) -> None:
    kind, inner = field.types[0], field.types[-1]
    writer.add_key_value(name, value, kind, inner if kind == gguf.GGUFValueType.ARRAY else None)


if __name__ == "__main__":
    main()
