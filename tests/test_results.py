"""Result folders: what is written is read, whatever stopped the writer."""

from __future__ import annotations

import csv
import io
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.errors import plain, visible
from specbench.records import Generation, Prompt
from specbench.result_files import files, schema
from specbench.result_files.journal import RunWriter, block_name
from specbench.result_files.results import (
    load_run,
    read_cycles,
    read_tokens,
)
from tests.runs import MANIFEST, cell, cycle, failed, generation, prompts, start

odd_text = st.text(st.characters(exclude_categories=()), max_size=12)


def test_written_is_read(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    given_ = generation("p0", [cycle(2, 2), cycle(0, 2, num_delivered=1), cycle(1, 2)])
    writer.write_group("small", cell(2), 0, 0, [given_])
    writer.finish_block("small")
    run = load_run(tmp_path / "r")
    row = run.generations.iloc[0]
    assert (row["cell"], row["draft"], row["gamma"]) == (cell(2).id, "small", 2)
    assert [row[c] for c in ("num_tested", "num_accepted", "num_full_accept")] == [5, 3, 1]
    assert [row[c] for c in ("num_cycles", "num_drafted", "num_output_tokens")] == [3, 6, 6]
    assert row["live_s"] == given_.live_s
    assert math.isnan(row["peak_memory_mb"])
    assert run.positions[["position", "num_tested", "num_accepted"]].to_numpy().tolist() == [
        [1, 3, 2],
        [2, 2, 1],
    ]


def test_tokens_and_cycles_are_read(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    writer.write_group("small", cell(2), 0, 0, [generation("p0", [cycle(2, 2), cycle(1, 2)])])
    before = [frame.to_dict("list") for frame in read_cycles(tmp_path / "r")]
    writer.finish_block("small")
    after = [frame.to_dict("list") for frame in read_cycles(tmp_path / "r")]
    assert before[0]["num_accepted"] == after[0]["num_accepted"] == [2, 1]
    assert [list(x) for x in after[0]["emitted_ids"]] == [[0, 1, 2], [0, 1]]
    assert list(after[0]) == list(schema.CYCLES)
    tokens = list(read_tokens(tmp_path / "r"))
    assert tokens[0]["token_ids"] == [0, 1, 2, 3, 4]
    assert tokens[0]["finish_reason"] == "length"


def test_text_is_decoded_where_a_decoder_is_given(tmp_path: Path) -> None:
    writer = RunWriter.create(
        tmp_path / "r", MANIFEST, prompts(1), "9f31", decode=lambda ids: " ".join(map(str, ids))
    )
    writer.write_group("small", cell(1), 0, 0, [generation("p0", [cycle(1, 1)])])
    assert next(read_tokens(tmp_path / "r"))["text"] == "0 1"


def test_undrafted_and_censored_cycles_are_counted(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    cut = cycle(2, 2, censor="eos", emitted_ids=(7, 8), num_delivered=2)
    short = cycle(0, 0, censor="context")
    writer.write_group("small", cell(2), 0, 0, [generation("p0", [cycle(0, 0), cut, short])])
    row = load_run(tmp_path / "r").generations.iloc[0]
    assert (row["num_undrafted"], row["num_censored"], row["num_full_accept"]) == (1, 2, 1)
    assert (row["num_tested"], row["num_accepted"]) == (2, 2)


def test_a_time_that_was_not_measured_is_empty(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 1)
    unknown = cycle(1, 1, draft_s=math.nan, other_s=math.nan)
    writer.write_group("small", cell(1), 0, 0, [generation("p0", [unknown])])
    writer.finish_block("small")
    writer.finish({})
    summary = load_run(tmp_path / "r").summary
    assert summary is not None
    assert summary["t_verify_ms"].iloc[0] == 20
    assert summary[["t_draft_ms", "latency_ms", "ttft_ms"]].iloc[0].isna().tolist() == [True] * 3
    assert summary["tau"].iloc[0] == 2


def test_a_failed_generation_has_a_reason_and_no_number(tmp_path: Path) -> None:
    """D28, D42: nothing of the generation before stays in the row of the failed one."""
    writer = start(tmp_path / "r", 2)
    writer.write_group("small", cell(1), 0, 0, [generation("p0", [cycle(1, 1)])])
    writer.write_group("small", cell(1), 1, 0, [failed("p1", "oom")])
    row = load_run(tmp_path / "r").generations.iloc[1]
    assert (row["status"], row["reason"], row["finish_reason"]) == ("oom", "too long", "")
    assert all(math.isnan(row[name]) for name in schema.GENERATION_SUMS)
    assert [t["prompt_id"] for t in read_tokens(tmp_path / "r")] == ["p0"]


def test_a_refused_cell_has_one_row(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 2)
    writer.write_refused(cell(3), "refused", "other vocabulary, see above")
    row = load_run(tmp_path / "r").generations.iloc[0]
    assert (row["status"], row["prompt_id"], row["group"]) == ("refused", "", -1)
    assert row["reason"] == "other vocabulary, see above"


@pytest.mark.parametrize("label", ["None", "NA", "null", "nan", "1", "=1+1", "a,b", 'q"\n', "-x"])
def test_labels_survive(tmp_path: Path, label: str) -> None:
    """D35: a draft called None and a data set called NA are read as text."""
    settings_ = {**MANIFEST["settings"], "dataset": "NA", "target": label}  # type: ignore[dict-item]
    writer = start(tmp_path / "r", 1, settings=settings_, drafts={label: {"kind": "hf"}})
    writer.write_group(label, cell(0, label), 0, 0, [generation("p0", [cycle(0, 0)])])
    writer.finish_block(label)
    writer.finish({})
    run = load_run(tmp_path / "r")
    assert run.generations["draft"].tolist() == [label]
    assert run.summary is not None
    assert run.summary[["draft", "target", "dataset"]].iloc[0].tolist() == [label, label, "NA"]


@settings(max_examples=200, deadline=None)
@given(st.lists(odd_text, min_size=1, max_size=4))
def test_any_text_survives_a_csv_line(texts: list[str]) -> None:
    line = files.csv_line([*texts, 1.5, None])
    (row,) = csv.reader(io.StringIO(line, newline=""))
    assert [files.unguard(f) for f in row] == [*map(plain, texts), "1.5", ""]
    assert not any(f.startswith(("=", "+", "-", "@", "\t", "\r")) for f in row)


@settings(max_examples=25, deadline=None)
@given(odd_text, odd_text)
def test_odd_ids_and_reasons_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, prompt_id: str, reason: str
) -> None:
    folder = tmp_path_factory.mktemp("odd") / "r"
    name = visible(f"p{prompt_id}")
    one = [Prompt(name, "c", "t", (1,))]
    writer = RunWriter.create(folder, MANIFEST, one, "h")
    broken = Generation(name, 0, (1,), status="error", reason=reason)
    writer.write_group("small", cell(1), 0, 0, [broken])
    row = load_run(folder).generations.iloc[0]
    assert row["prompt_id"] == name
    assert row["reason"] == visible(reason)
    assert RunWriter.resume(folder, MANIFEST, "h").done() == set()


@pytest.mark.parametrize("block", ["org/name", "./dir/", "a b:c", "..", "Small", "x" * 300, "CON"])
def test_block_files_stay_in_the_folder(tmp_path: Path, block: str) -> None:
    """D36: no label makes a folder or leaves ours."""
    writer = start(tmp_path / "r", 1)
    writer.write_group(block, cell(1), 0, 0, [generation("p0", [cycle(1, 1)])])
    writer.finish_block(block)
    assert [p.name for p in (tmp_path / "r" / "cycles").iterdir()] == [
        f"{block_name(block)}.parquet"
    ]
    assert block_name("a/b") != block_name("a b")
    assert block_name("Small") != block_name("small")


# What a kill leaves -------------------------------------------------------------------------


def two_groups(folder: Path) -> list[tuple[Path, int, bytes]]:
    """A run of two groups of two; gives each file's size before the last group, and its bytes."""
    writer = start(folder, 4)
    pair = cell(1, batch=2)
    writer.write_group("small", pair, 0, 0, [generation(f"p{i}", [cycle(1, 1)]) for i in (0, 1)])
    names = ("cycles/small.jsonl", "tokens.jsonl", "positions.csv", "generations.csv")
    sizes = [(folder / name).stat().st_size for name in names]
    writer.write_group("small", pair, 1, 0, [generation(f"p{i}", [cycle(0, 1)]) for i in (2, 3)])
    return [
        (folder / n, size, (folder / n).read_bytes()) for n, size in zip(names, sizes, strict=True)
    ]


def cut_at(parts: list[tuple[Path, int, bytes]], file: int, size: int) -> None:
    """The files as a kill leaves them: earlier ones whole, this one cut, later ones untouched."""
    for index, (path, before, data) in enumerate(parts):
        keep = len(data) if index < file else size if index == file else before
        path.write_bytes(data[:keep])


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_byte_leaves_a_group_whole_or_absent(tmp_path: Path, step: int) -> None:
    parts = two_groups(tmp_path / "r")
    first, both = {(cell(1, batch=2).id, 0, 0)}, {(cell(1, batch=2).id, g, 0) for g in (0, 1)}
    for file, (_, before, data) in enumerate(parts):
        for size in [*range(before, len(data), step), len(data)]:
            cut_at(parts, file, size)
            done = RunWriter.resume(tmp_path / "r", MANIFEST, "9f31").done()
            assert done == (both if (file, size) == (3, len(data)) else first)
            kept = len(done)
            assert (tmp_path / "r" / "generations.csv").read_bytes().count(b"\n") == 1 + 2 * kept
            assert (tmp_path / "r" / "positions.csv").read_bytes().count(b"\n") == 1 + 2 * kept
            assert len((tmp_path / "r" / "tokens.jsonl").read_text().splitlines()) == 2 * kept
            assert len((tmp_path / "r" / "cycles/small.jsonl").read_text().splitlines()) == 2 * kept


def test_a_killed_run_can_be_read_as_it_is(tmp_path: Path) -> None:
    parts = two_groups(tmp_path / "r")
    for file, (_, before, data) in enumerate(parts):
        for size in (before, before + 1, (before + len(data)) // 2, len(data) - 1):
            cut_at(parts, file, size)
            run = load_run(tmp_path / "r")
            assert run.generations["prompt_id"].tolist() == ["p0", "p1"]
            assert run.positions["prompt_id"].tolist() == ["p0", "p1"]
            assert len(list(read_tokens(tmp_path / "r"))) == 2
            assert sum(len(frame) for frame in read_cycles(tmp_path / "r")) == 2
            assert run.summary is None
            assert not run.finished


KILLED = """
import sys
from pathlib import Path
from tests.runs import cell, cycle, generation, start
writer = start(Path(sys.argv[1]), 10_000)
print("on", flush=True)
for group in range(10_000):
    writer.write_group("small", cell(1), group, 0, [generation(f"p{group}", [cycle(1, 1)])])
"""


def test_resume_after_a_real_kill(tmp_path: Path) -> None:
    """D37: one header, no key twice, nothing lost of what was committed."""
    folder = tmp_path / "r"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        while (folder / "generations.csv").read_bytes().count(b"\n") < 8:
            pass
        child.kill()
    writer = RunWriter.resume(folder, MANIFEST, "9f31")
    written = len(writer.done())
    assert written >= 7
    writer.write_group("small", cell(1), written, 0, [generation(f"p{written}", [cycle(1, 1)])])
    rows = files.csv_rows(folder / "generations.csv")
    assert [r[0] for r in rows].count("cell") == 1
    keys = load_run(folder).generations["prompt_id"].tolist()
    assert keys == [f"p{i}" for i in range(written + 1)]


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    for name in ("whole", "resumed"):
        writer = start(tmp_path / name, 4)
        for group in range(4):
            if name == "resumed" and group == 2:
                writer = RunWriter.resume(tmp_path / name, MANIFEST, "9f31")
            texts = [generation(f"p{group}", [cycle(group % 2, 1)])]
            writer.write_group("small", cell(1), group, 0, texts)
        writer.finish_block("small")
        writer.finish({})
    for file in ("generations.csv", "positions.csv", "tokens.jsonl", "summary.csv"):
        whole = (tmp_path / "whole" / file).read_bytes()
        assert (tmp_path / "resumed" / file).read_bytes() == whole


def test_failed_groups_and_refused_cells_are_tried_again(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 4)
    pair = cell(1, batch=2)
    writer.write_group("small", pair, 0, 0, [generation("p0", [cycle(1, 1)]), failed("p1")])
    writer.write_group("small", pair, 1, 0, [generation(f"p{i}", [cycle(1, 1)]) for i in (2, 3)])
    writer.write_refused(cell(9), "oom", "no room")
    writer.finish_block("small")
    writer.finish({})
    again = RunWriter.resume(tmp_path / "r", MANIFEST, "9f31")
    assert again.done() == {(pair.id, 1, 0)}
    assert not (tmp_path / "r" / "summary.csv").exists()
    again.write_group("small", pair, 0, 0, [generation(f"p{i}", [cycle(0, 1)]) for i in (0, 1)])
    again.finish_block("small")
    again.finish({})
    frames = list(read_cycles(tmp_path / "r"))
    assert sorted(p for frame in frames for p in frame["prompt_id"]) == ["p0", "p1", "p2", "p3"]
    assert set(load_run(tmp_path / "r").generations["status"]) == {"ok"}


def test_a_kill_while_compacting_doubles_no_cycle(tmp_path: Path) -> None:
    writer = start(tmp_path / "r", 2)
    writer.write_group("small", cell(1), 0, 0, [generation("p0", [cycle(1, 1)])])
    journal = tmp_path / "r/cycles/small.jsonl"
    shutil.copy(journal, tmp_path / "kept")
    writer.finish_block("small")
    shutil.copy(tmp_path / "kept", journal)
    assert sum(len(f) for f in read_cycles(tmp_path / "r")) == 1
    again = RunWriter.resume(tmp_path / "r", MANIFEST, "9f31")
    again.finish_block("small")
    assert sum(len(f) for f in read_cycles(tmp_path / "r")) == 1


LIMITED = """
import resource, signal, sys
from pathlib import Path
from specbench.errors import RunError
from tests.runs import cell, cycle, generation, start
writer = start(Path(sys.argv[1]), 100)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
try:
    for group in range(100):
        writer.write_group("small", cell(1), group, 0, [generation(f"p{group}", [cycle(1, 1)])])
except RunError as fault:
    print("\\n".join(fault.lines()), len(writer.done()), sep="\\n")
"""


def test_a_full_disk_is_told_and_what_was_measured_stays(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "r")],
        capture_output=True,
        text=True,
        check=True,
    )
    *message, count = done.stdout.splitlines()
    assert message[0] == "error: cannot write results: File too large"
    assert "--resume" in message[-1]
    assert len(load_run(tmp_path / "r").generations) == int(count) > 3
    assert (tmp_path / "r/cycles/small.jsonl").read_bytes().endswith(b"\n")


# What is refused ------------------------------------------------------------------------------


# run.json ----------------------------------------------------------------------------------
