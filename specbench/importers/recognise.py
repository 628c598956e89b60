"""Which tool wrote a file, from its content; and the table of formats."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

from specbench.calculator import counter_names
from specbench.errors import UsageError
from specbench.importers.llamacpp import has_statistics, lines_of
from specbench.importers.model import Source, Told
from specbench.importers.stream import Doc, data_of, documents, start_of

LOG_LINES = 2_000_000
HEADER_LINES = 100


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file."""

    name: str
    tool: str
    reads: str
    """`module:function`, imported on use; it takes documents, or the path where `text` is set."""
    text: bool = False


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format("vllm-bench", "vllm bench serve", "vllm:read"),
        Format("vllm-requests", "vLLM per-request metrics", "vllm_requests:read"),
        Format("sglang", "SGLang bench_speculative", "sglang:read"),
        Format("speculators", "speculators acceptance.csv", "tables:read_speculators", text=True),
        Format("spec-bench", "Spec-Bench", "spec_bench:read"),
        Format("llamacpp", "llama.cpp server timings", "llamacpp:read"),
        Format("llamacpp-log", "llama.cpp statistics", "llamacpp:read_log", text=True),
        Format("counters", "a table of counters", "tables:read_table", text=True),
    )
}


def read(path: Path, told: Told, name: str = "") -> tuple[Format, Source]:
    """The file, read as the format that it looks like, or as the one named."""
    if name and name not in FORMATS:
        raise UsageError(f'--format-of "{name}": no such format', hint=", ".join(FORMATS))
    data = data_of(path)
    if not data or start_of(data) >= len(data):
        raise UsageError(f"{path} is empty", hint="the result file of another tool")
    found = FORMATS[name or recognised(path)]
    module, function = found.reads.split(":")
    reader = getattr(importlib.import_module(f"specbench.importers.{module}"), function)
    if found.text:
        return found, cast("Callable[[Path, Told], Source]", reader)(path, told)
    docs = documents(data, str(path))
    first = next(docs, None)
    if first is None:
        raise UsageError(f"{path} holds no JSON object", hint="the result file of another tool")
    return found, reader(itertools.chain([first], docs), told)


def recognised(path: Path) -> str:
    """The name of the format that a file's content shows."""
    data = data_of(path)
    start = start_of(data)
    if data[start : start + 1] in (b"{", b"["):
        doc = next(documents(data, str(path)), None)
        found = "" if doc is None else _of_document(doc)
    else:
        found = _of_text(path)
    return found or _unknown(path)


def _of_document(doc: Doc) -> str:
    if any(key in doc for key in ("timings", "predicted_n")):
        return "llamacpp"
    if "choices" in doc and "question_id" in doc:
        return "spec-bench"
    if all(key in doc for key in ("steps", "topk", "acc_length")):
        return "sglang"
    if "num_spec_steps" in doc or "speculative_decoding" in doc or _has_block(doc):
        return "vllm-requests"
    served = ("request_throughput", "output_throughput", "total_output_tokens")
    own = ("spec_decode_num_drafts", "spec_decode_acceptance_length")
    return "vllm-bench" if any(k in doc for k in own) or all(k in doc for k in served) else ""


def _has_block(doc: Doc) -> bool:
    metrics = doc.get("metrics")
    if not isinstance(metrics, dict):
        return False
    return "speculative_decoding" in metrics or "num_spec_steps" in metrics


def _of_text(path: Path) -> str:
    header = next((line for line in itertools.islice(lines_of(path), HEADER_LINES) if line.strip()
                   and not line.startswith("#")), "")  # fmt: skip
    names = [part.strip().strip('"') for part in header.replace(";", ",").split(",")]
    if any(name.startswith("acceptance_at_pos_") for name in names):
        return "speculators"
    known = [one for one in names if counter_names.meaning(one) or counter_names.position(one)]
    if len(names) > 1 and known:
        return "counters"
    lines = itertools.islice(lines_of(path), LOG_LINES)
    return "llamacpp-log" if any(map(has_statistics, lines)) else ""


def _unknown(path: Path) -> NoReturn:
    known = "\n".join(f"{one.name}: {one.tool}" for one in FORMATS.values())
    raise UsageError(
        f"{path} is of no known format",
        where=known,
        hint="--format-of NAME if it is one of these; docs/import.md says what each holds",
    )
