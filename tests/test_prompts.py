"""Prompts: every file format, faults with their place, selection, chat templates and BOS."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from specbench.errors import UsageError
from specbench.prompts import (
    RawPrompt,
    dataset_label,
    encode,
    load_prompts,
    prepare,
    select,
    set_hash,
    template_note,
    turn_messages,
)
from specbench.recipe import PromptsConfig

WORDS = ("<unk>", "<s>", "</s>", "user:", "assistant:", "one", "two", "three", "four")
CHAT = (
    "{{ bos_token }} {% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def tokenizer(*, template: str = "", adds_bos: bool = True) -> PreTrainedTokenizerFast:
    base = Tokenizer(WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    base.pre_tokenizer = WhitespaceSplit()
    if adds_bos:
        base.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    out = PreTrainedTokenizerFast(
        tokenizer_object=base, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    if template:
        out.chat_template = template
    return out


def single(text: str = "one two") -> RawPrompt:
    return RawPrompt("a", "chat", (text,))


def written(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def rows(*data: dict[str, Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in data)


def refused(dataset: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_prompts(dataset)
    return "\n".join(caught.value.lines())


# Files


def test_mt_bench_rows_are_read_as_they_are(tmp_path: Path) -> None:
    row = {"question_id": 81, "category": "writing", "turns": ["one", "two"], "reference": ["x"]}
    (prompt,) = load_prompts(written(tmp_path, "q.jsonl", rows(row)))
    assert prompt == RawPrompt("81", "writing", ("one", "two"))
    assert [prompt.turn_id(turn) for turn in (1, 2)] == ["81#1", "81#2"]


@pytest.mark.parametrize(
    ("row", "prompt_id", "text"),
    [
        ({"question": "one", "answer": "x"}, "1", "one"),
        ({"task_id": "HumanEval/0", "prompt": "one", "test": "x"}, "HumanEval/0", "one"),
        ({"id": "p", "text": "one"}, "p", "one"),
        ({"id": 3.0, "content": "one"}, "3", "one"),
        ({"id": "", "turns": None, "text": "one"}, "1", "one"),
        ({"instruction": "one", "input": "two"}, "1", "one\n\ntwo"),
        ({"instruction": "one", "input": ""}, "1", "one"),
    ],
)
def test_the_text_column_and_the_id(
    tmp_path: Path, row: dict[str, Any], prompt_id: str, text: str
) -> None:
    (prompt,) = load_prompts(written(tmp_path, "q.jsonl", rows(row)))
    assert (prompt.prompt_id, prompt.turns) == (prompt_id, (text,))


def test_a_conversation_ends_with_the_user(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "three"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
    ]
    (prompt,) = load_prompts(written(tmp_path, "q.jsonl", rows({"messages": messages})))
    assert prompt.messages == tuple(messages[:2])
    assert (prompt.num_turns, turn_messages(prompt)) == (1, messages[:2])


def test_mark_line_ends_and_blank_lines_change_nothing(tmp_path: Path) -> None:
    clean = rows({"id": "a", "text": "größer"}, {"id": "b", "text": "日本 one\u2028two"})
    dirty = "\ufeff" + clean.replace("\n", "\r\n") + "\r\n  \n"
    expected = load_prompts(written(tmp_path, "clean.jsonl", clean))
    assert load_prompts(written(tmp_path, "dirty.jsonl", dirty)) == expected
    assert expected[1].turns == ("日本 one\u2028two",)


def test_lines_are_counted_with_the_blank_ones(tmp_path: Path) -> None:
    prompts = load_prompts(written(tmp_path, "p.txt", "one\r\n\r\ntwo\n"))
    assert [(p.prompt_id, p.turns) for p in prompts] == [("1", ("one",)), ("3", ("two",))]


def test_csv_keeps_text_as_it_stands(tmp_path: Path) -> None:
    text = '\ufeffid,category,prompt\nNA,None,"one,\ntwo"\n007,null,nan\n'
    prompts = load_prompts(written(tmp_path, "p.csv", text))
    assert [(p.prompt_id, p.category, p.turns[0]) for p in prompts] == [
        ("NA", "None", "one,\ntwo"),
        ("007", "null", "nan"),
    ]


def test_csv_turns_may_be_json(tmp_path: Path) -> None:
    text = 'turns\n"[""one"", ""two""]"\n[one]\n'
    prompts = load_prompts(written(tmp_path, "p.csv", text))
    assert [p.turns for p in prompts] == [("one", "two"), ("[one]",)]


def test_json_is_a_list_or_holds_one(tmp_path: Path) -> None:
    data = ["one", {"id": "b", "text": "two"}]
    plain = load_prompts(written(tmp_path, "p.json", json.dumps(data)))
    assert plain == load_prompts(written(tmp_path, "q.json", json.dumps({"n": 1, "data": data})))
    assert [(p.prompt_id, p.turns) for p in plain] == [("1", ("one",)), ("b", ("two",))]


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.table({"question_id": [5, 6], "turns": [["one", "two"], ["three"]]})
    pyarrow.parquet.write_table(table, tmp_path / "p.parquet")
    prompts = load_prompts(str(tmp_path / "p.parquet"))
    assert [(p.prompt_id, p.turns) for p in prompts] == [("5", ("one", "two")), ("6", ("three",))]


def test_a_name_without_an_ending_is_looked_into(tmp_path: Path) -> None:
    assert load_prompts(written(tmp_path, "NA", rows({"text": "one"})))[0].turns == ("one",)
    assert load_prompts(written(tmp_path, "None", "one\n"))[0].turns == ("one",)
    assert [dataset_label(name) for name in (str(tmp_path / "NA"), "x/NA.jsonl", "general")] == [
        "NA",
        "NA",
        "general",
    ]


# Faults of files


def test_a_broken_line_is_named_with_its_column(tmp_path: Path) -> None:
    broken = rows({"text": "one"}) + '{"id": 17, "turns": ["Write a "poem"]}\n'
    path = written(tmp_path, "prompts.jsonl", broken)
    lines = refused(path).split("\n")
    assert lines[0] == f"error: {path}, line 2: not valid JSON (expected , at column 32)"
    assert lines[1] == '  where  {"id": 17, "turns": ["Write a "poem"]}'
    assert lines[2] == f"  try    escape the inner quotes; specbench validate {path}"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.jsonl", rows({"id": "a", "text": "one"}, {"id": "a", "text": "two"}), "line 2: the id"),
        ("p.jsonl", rows({"id": 2, "text": "one"}, {"text": "two"}), "first at"),
        ("p.jsonl", rows({"id": "a#1", "text": "x"}, {"id": "a", "turns": ["x", "y"]}), '"a#1"'),
        ("p.jsonl", rows({"text": "one"}, {"text": "  \n"}), "line 2: the prompt is empty"),
        ("p.jsonl", rows({"turns": ["one", ""]}), "line 1: the prompt is empty"),
        ("p.jsonl", '{"text": "\\ud800"}\n', "half of a surrogate pair"),
        ("p.jsonl", rows({"body": "one", "n": 1}), "columns body, n"),
        ("p.jsonl", rows({"turns": [1, 2]}), "neither text nor a list of texts"),
        ("p.jsonl", rows({"turns": []}), "neither text nor a list of texts"),
        ("p.jsonl", rows({"messages": [{"role": "user"}]}), "without role or text"),
        ("p.jsonl", "3\n", "line 1: neither a record nor text"),
        ("p.jsonl", "\n\n", "holds no prompts"),
        ("p.json", "[1,\n2 3]", "line 2: not valid JSON (expected , at column 3)"),
        ("p.json", '{"a": 1}', "no list of prompts"),
        ("p.csv", "text,id\none,1\ntwo\n", "line 3: another number of fields"),
        ("p.csv", "text,id\none,1,2\n", "line 2: another number of fields"),
        ("p.csv", 'text\n"one\n', "not valid CSV"),
        ("p.parquet", "text", "not a readable Parquet file"),
        ("p.yaml", "text", "no prompts are read from .yaml files"),
        ("p.txt", b"one\n\xff\n", "line 2: not UTF-8"),
    ],
)
def test_faults_name_file_and_line(
    tmp_path: Path, name: str, text: str | bytes, message: str
) -> None:
    shown = refused(written(tmp_path, name, text))
    assert message in shown
    assert f"{tmp_path / name}" in shown


def test_what_is_not_there() -> None:
    assert "did you mean general?" in refused("genral")
    assert "no prompts at nowhere.jsonl" in refused("nowhere.jsonl")


def test_a_folder_with_a_loading_script_is_refused_with_an_offer(tmp_path: Path) -> None:
    written(tmp_path, "p.jsonl", rows({"text": "one"}))
    assert "a file in it: p.jsonl" in refused(str(tmp_path))
    written(tmp_path, f"{tmp_path.name}.py", "raise SystemExit")
    for dataset in (str(tmp_path), f"hf:{tmp_path}:train:text"):
        shown = refused(dataset)
        assert "holds a loading script" in shown
        assert "JSONL or Parquet" in shown


# The hub


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does for a gated data set and for one that is not there."""

    def do_GET(self) -> None:
        gated = "gated" in self.path
        self.send_response(403 if gated else 404)
        self.send_header("X-Error-Code", "GatedRepo" if gated else "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Keep the tests' output clean."""


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


SCRIPT = """
import sys, time
from specbench.errors import UsageError
from specbench.prompts import load_prompts
for dataset in sys.argv[1:]:
    try:
        print(load_prompts(dataset)[-1].turns)
    except UsageError as error:
        print(error.what)
"""


def answers(environment: dict[str, str], *datasets: str) -> list[str]:
    # A process of its own: the hub's library reads its settings once, when it is imported.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *datasets],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parent.parent)}
        | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_hub_gated_missing_and_unreachable_are_told_apart(tmp_path: Path, hub: str) -> None:
    env = {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    assert answers(env, "hf:o/gated:test:q", "hf:o/none:test:q", "hf:o/n:a:b:c") == [
        "the data set o/gated is gated",
        "no data set o/none on the hub",
        "--dataset hf:o/n:a:b:c: not a data set's name",
    ]
    (line,) = answers(env | {"HF_ENDPOINT": "http://127.0.0.1:9"}, "hf:o/n:test:q")
    assert line.startswith("the hub cannot be reached (")


def test_offline_only_local_data_is_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    written(data, "train.jsonl", rows({"body": "one", "id": "a"}, {"body": "two", "id": "b"}))
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    local = [f"hf:{data}:{rest}" for rest in ("train:body", "nosplit:body", "train:x")]
    missing, good, split, column = answers(env, "hf:owner/name:test:question", *local)
    assert missing == "the hub cannot be reached and the data set owner/name is not in the cache"
    assert good == "('two',)"
    assert split.startswith(f"--dataset {local[1]}: ")
    assert column.endswith('no column "x"')


# Selection


def chosen(*categories: str) -> tuple[RawPrompt, ...]:
    return tuple(RawPrompt(str(n), name, ("one",)) for n, name in enumerate(categories, start=1))


def test_selection_keeps_the_order_of_the_file() -> None:
    prompts = chosen("a", "b", "a", "c")
    kept, note = select(prompts, ("c", "a"), 2)
    assert ([p.prompt_id for p in kept], note) == (["1", "3"], "")
    assert select(prompts)[0] == prompts


def test_fewer_prompts_than_asked_for_give_a_note() -> None:
    kept, note = select(chosen("a", "a"), (), 5)
    assert (len(kept), note) == (2, "2 prompts are used: 5 were asked for")


def test_an_unknown_category_lists_those_that_exist() -> None:
    with pytest.raises(UsageError) as caught:
        select(chosen("a", "b", "a"), ("x",))
    assert caught.value.where == "categories: a, b"
    with pytest.raises(UsageError, match='"x"'):
        select(chosen("", ""), ("x",))


# Tokens


@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_template_that_writes_bos_gives_exactly_one(adds_bos: bool) -> None:
    prompt = encode(single(), tokenizer(template=CHAT, adds_bos=adds_bos))
    assert prompt.token_ids == (1, 3, 5, 6, 4)
    assert prompt.text == "<s> user: one two assistant:"
    assert prompt.messages == ({"role": "user", "content": "one two"},)


def test_a_bos_that_the_template_leaves_out_is_the_tokenizers() -> None:
    without = CHAT.removeprefix("{{ bos_token }} ")
    assert encode(single(), tokenizer(template=without)).token_ids == (1, 3, 5, 6, 4)
    plain = encode(single(), tokenizer(template=without, adds_bos=False))
    assert plain.token_ids == (3, 5, 6, 4)


@pytest.mark.parametrize("template", ["", CHAT])
@pytest.mark.parametrize("text", ["one two", "<s> one two"])
def test_raw_prompts_have_exactly_one_bos(template: str, text: str) -> None:
    prompt = encode(single(text), tokenizer(template=template), raw_prompt=True)
    assert (prompt.token_ids, prompt.messages) == ((1, 5, 6), ())
    assert encode(single(), tokenizer(adds_bos=False), raw_prompt=True).token_ids == (5, 6)


def test_without_a_template_the_prompt_is_used_as_it_is_with_a_note() -> None:
    assert encode(single(), tokenizer()).text == "one two"
    assert "no chat template" in template_note(tokenizer())
    assert template_note(tokenizer(template=CHAT)) == ""
    assert template_note(tokenizer(), raw_prompt=True) == ""


def test_later_turns_carry_the_replies() -> None:
    raw = RawPrompt("a", "chat", ("one", "two"))
    first = encode(raw, tokenizer(template=CHAT))
    second = encode(raw, tokenizer(template=CHAT), history=["three"])
    assert (first.prompt_id, second.prompt_id) == ("a#1", "a#2")
    assert first.text == "<s> user: one assistant:"
    assert second.text == "<s> user: one assistant: three user: two assistant:"


def test_raw_turns_are_joined_by_line_feeds() -> None:
    raw = RawPrompt("a", "chat", ("one", "two"))
    second = encode(raw, tokenizer(template=CHAT), raw_prompt=True, history=["three"])
    assert (second.text, second.prompt_id) == ("one\nthree\ntwo", "a#2")


def test_no_tokens_at_all_is_an_error() -> None:
    silent = tokenizer()
    silent.backend_tokenizer.normalizer = Replace("one two", "")
    with pytest.raises(UsageError, match='"a" into no tokens'):
        encode(single(), silent)


def test_a_template_that_refuses_is_named_with_its_prompt() -> None:
    strict = tokenizer(template="{{ raise_exception('no system message') }}")
    with pytest.raises(UsageError, match=r'refuses the prompt "a" \(no system message\)'):
        encode(single(), strict)


def test_the_hash_covers_ids_categories_and_tokens() -> None:
    words = tokenizer()
    base = [encode(single(text), words) for text in ("one", "two")]
    other = [encode(RawPrompt("a", "code", ("one",)), words), base[1]]
    hashes = {set_hash(base), set_hash(base[::-1]), set_hash(other), set_hash(base[:1])}
    assert len(hashes) == 4
    assert set_hash(base) == set_hash(list(base))


# From a recipe's settings


def prepared(folder: Path, **settings: Any) -> Any:
    texts = ("one", "one two", "one two three", "one two three four")
    path = written(folder, "p.jsonl", rows(*({"text": text, "category": "c"} for text in texts)))
    return prepare(PromptsConfig(dataset=path, **settings), tokenizer())


def test_prompts_are_cut_by_encoded_length_then_by_number(tmp_path: Path) -> None:
    found = prepared(tmp_path, min_tokens=3, max_tokens=4, num=5)
    assert [len(p.token_ids) for p in found.first] == [3, 4]
    assert [p.prompt_id for p in found.raw] == ["2", "3"]
    assert found.notes[1] == "2 prompts are used: 5 were asked for"
    assert [p.prompt_id for p in prepared(tmp_path, num=1, min_tokens=4).raw] == ["3"]


def test_no_prompt_of_the_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 99 tokens"):
        prepared(tmp_path, min_tokens=99)
