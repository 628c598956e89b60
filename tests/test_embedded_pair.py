from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from scripts.embedded import rserial

ROOT = Path(__file__).resolve().parent.parent / "specbench"
FOLDERS = [ROOT / "embedded" / name for name in ("target", "draft")]
PASSAGES = ROOT / "data" / "passages.jsonl"


def _word(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">ii", 0x00040009, len(data)) + data


def _header(version: int = 3) -> bytes:
    head = b"X\n" + struct.pack(">iii", version, 0x040201, 0x030500)
    return head + struct.pack(">i", 5) + b"UTF-8" if version == 3 else head


def _names(*names: str) -> bytes:
    symbol = struct.pack(">ii", 0x402, 1) + _word("names")
    body = b"".join(_word(name) for name in names)
    return symbol + struct.pack(">ii", 16, len(names)) + body + struct.pack(">i", 254)


def test_reads_strings_with_missing_values() -> None:
    data = _header(2) + struct.pack(">ii", 16, 2) + _word("a £") + struct.pack(">ii", 9, -1)
    assert rserial.loads(data) == ["a £", None]


def test_reads_a_named_list_of_numbers() -> None:
    whole = struct.pack(">iiii", 13, 2, 7, -(2**31))
    real = struct.pack(">iid", 14, 1, 0.5)
    data = _header() + struct.pack(">ii", 0x213, 2) + whole + real + _names("i", "x")
    assert rserial.loads(data) == {"i": [7, None], "x": [0.5]}


def test_reads_a_lazy_data_base(tmp_path: Path) -> None:
    value = _header() + struct.pack(">ii", 16, 1) + _word("line")
    packed = struct.pack(">i", len(value)) + zlib.compress(value)
    place = struct.pack(">iiii", 13, 2, 0, len(packed))
    table = struct.pack(">ii", 0x213, 1) + place + _names("book")
    index = _header() + struct.pack(">ii", 0x213, 1) + table + _names("variables")
    (tmp_path / "R.rdx").write_bytes(zlib.compress(index, wbits=31))
    (tmp_path / "R.rdb").write_bytes(packed)
    assert rserial.read_lazy_data(tmp_path / "R") == {"book": ["line"]}


@pytest.mark.parametrize("data", [b"A\n", _header(2), _header(2) + struct.pack(">i", 4)])
def test_refuses_other_bytes(data: bytes) -> None:
    with pytest.raises(rserial.RFormatError):
        rserial.loads(data)


def test_the_pair_takes_less_than_15_megabytes() -> None:
    files = [file for folder in FOLDERS for file in folder.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 15_000_000


def test_the_pair_loads_offline_and_shares_its_vocabulary() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = []
    for folder in FOLDERS:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32
        )
        ids = tokenizer("It is a truth", return_tensors="pt").input_ids
        assert model(ids).logits.shape[-1] == len(tokenizer) == 1024
        assert model.generation_config.eos_token_id == tokenizer.eos_token_id
        assert not model.generation_config.do_sample
        assert (folder / "README.md").read_text(encoding="utf-8").startswith("---\nlicense")
        words.append(tokenizer.get_vocab())
    assert words[0] == words[1]


@pytest.mark.parametrize("text", ["And it came to pass,\nthat £5", " two  spaces ", "naïve – 北\t"])
def test_the_tokenizer_gives_back_the_text(text: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(FOLDERS[0], local_files_only=True)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_passages_are_prompts() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(FOLDERS[0], local_files_only=True)
    lines = [json.loads(line) for line in PASSAGES.read_text(encoding="utf-8").splitlines()]
    assert len(lines) >= 48
    assert len({line["id"] for line in lines}) == len(lines)
    assert len({line["text"] for line in lines}) == len(lines)
    assert [line["category"] for line in lines[:4]] == ["novel", "scripture"] * 2
    for line in lines:
        assert set(line) == {"id", "category", "text"}
        assert 60 <= len(line["text"].split()) <= 120
        assert not line["text"][-1].isspace()
        assert 0 < len(tokenizer.encode(line["text"])) < 300
