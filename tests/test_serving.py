"""The client of a server: times, counts of tokens, and everything that goes wrong on the way."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from specbench.errors import UsageError
from specbench.records import Prompt, Sampling
from specbench.serving.ask import ask, ask_all
from specbench.serving.dialects import Ask, read
from specbench.serving.faults import ServerFault
from specbench.serving.replies import Piece, Reading
from specbench.serving.service import open_service
from specbench.serving.sse import events
from specbench.serving.transport import Address, address_of
from tests.served import Handler, Served, serving

PROMPT = Prompt("1", "", "five words of a prompt", (1, 2, 3, 4, 5))
CHAT = Prompt("1", "", "x", (1, 2, 3, 4, 5), ({"role": "user", "content": "x"},))
PLAN = ((3, 2), (3, 0), (3, 3))
"""Steps that emit 3, 1 and 4 tokens."""


def asked(tokens: int = 9, prompt: Prompt = PROMPT) -> Ask:
    return Ask("toy", prompt, Sampling(0.0), tokens, seed=0)


def at(served: Served, **more: Any) -> Address:
    return address_of(served.url, "test", **{"timeout_s": 5.0, "retries": 0, **more})


def fault_of(served: Served, api: Any = "completions", **more: Any) -> ServerFault:
    with pytest.raises(ServerFault) as caught:
        ask(at(served, **more), api, asked())
    return caught.value


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_do_not_depend_on_how_the_stream_was_cut(size: int) -> None:
    raw = 'data: {"a": "é"}\r\n\r\n: ping\n\ndata: one\ndata: two\n\n'
    raw += "event: x\ndata:[DONE]\r\rdata: cut"
    data = raw.encode()
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    assert list(events(parts)) == ['{"a": "é"}', "one\ntwo", "[DONE]"]


def test_a_line_in_many_parts_is_one_line() -> None:
    """Also one whose CR and LF come apart, and whatever stands behind it."""
    parts = [b"data: ", *[b"x" * 999] * 700, b"\r", b"\n\r", b"\ndata: y", b"\n\n"]
    assert [len(data) for data in events(parts)] == [999 * 700, 1]


def test_tokens_are_those_of_the_server_and_not_of_the_chunks() -> None:
    with serving(plan=PLAN) as served:
        found = ask(at(served), "completions", asked())
    assert found.num_tokens == 9
    assert found.token_ids == tuple(range(101, 110))
    assert found.text == "".join(f" t{i}" for i in range(101, 110))
    assert (found.num_prompt_tokens, found.finish_reason) == (5, "length")


def test_time_per_token_is_over_tokens_and_not_over_chunks() -> None:
    with serving(gamma=7, plan=((7, 7),), step_s=0.1) as served:
        found = ask(at(served), "completions", asked())
    # Two events, 100 ms apart, with one and eight tokens.
    assert found.first_s == pytest.approx(0.1, abs=0.05)
    assert found.tpot_s == pytest.approx(0.1 / 8, abs=0.006)


@pytest.mark.parametrize(
    ("tool", "api"), [("llamacpp", "llamacpp"), ("sglang", "sglang"), ("vllm", "completions")]
)
def test_every_api_gives_the_same_text_ids_and_number(tool: str, api: Any) -> None:
    with serving(tool=tool, plan=PLAN) as served:
        found = ask(at(served), api, asked())
    assert found.token_ids == tuple(range(101, 110))
    assert found.text == "".join(f" t{i}" for i in range(101, 110))
    assert (found.num_tokens, found.finish_reason) == (9, "length")


def test_an_eos_has_no_text_and_is_counted() -> None:
    for tool, api in (("vllm", "completions"), ("llamacpp", "llamacpp"), ("sglang", "sglang")):
        with serving(tool=tool, plan=PLAN, eos=2, finish="stop") as served:
            found = ask(at(served), api, asked())  # type: ignore[arg-type]
        assert (found.num_tokens, found.finish_reason) == (9, "eos")
        assert found.token_ids[-1] == 2
        assert "t2 " not in found.text


def test_the_whole_law_is_sent() -> None:
    with serving() as served:
        law = Sampling(0.7, 0, 0.9)
        ask(at(served), "completions", Ask("toy", PROMPT, law, 2, seed=7, ignore_eos=True))
    body = served.bodies[0]
    wanted = {"temperature": 0.7, "top_k": -1, "top_p": 0.9, "min_p": 0.0, "seed": 7}
    assert body | wanted | {"ignore_eos": True, "repetition_penalty": 1.0} == body
    assert body["prompt"] == [1, 2, 3, 4, 5]


def test_requests_of_a_batch_are_under_way_together() -> None:
    with serving(plan=((3, 0),), step_s=0.05) as served:
        start = time.perf_counter()
        found = ask_all(at(served), "completions", [asked()] * 4)
        seconds = time.perf_counter() - start
    assert len(found.replies) == 4
    assert not found.faults
    # One request takes nine steps of 50 ms; four in a row would take 1.8 s.
    assert 0.4 < seconds < 1.2
    assert sum(found.shares_s) == pytest.approx(0.4, abs=0.15)
    for share, reply in zip(found.shares_s, found.replies, strict=True):
        assert 0 < share <= reply.decode_s


def test_a_busy_server_is_asked_again_and_the_wait_is_no_part_of_the_time() -> None:
    with serving(plan=PLAN, statuses=[429, 503]) as served:
        found = ask(at(served, retries=2), "completions", asked())
    assert found.num_tokens == 9
    assert found.first_s < 0.4
    assert len(served.bodies) == 3


def test_a_server_that_stays_busy_is_a_fault_after_the_last_try() -> None:
    with serving(statuses=[503] * 9, retry_after="0") as served:
        fault = fault_of(served, retries=2)
        tries = len(served.bodies)
    assert (fault.kind, fault.status, tries) == ("busy", 503, 3)
    assert "said 503" in fault.what


def test_a_refusal_is_not_repeated() -> None:
    with serving(statuses=[400, 200]) as served:
        assert fault_of(served, retries=3).kind == "refused"
        assert len(served.bodies) == 1


def test_a_key_is_in_no_message_of_a_server_that_repeats_it() -> None:
    with serving(statuses=[401], echo=True) as served:
        assert served.url
        told = fault_of(served, api_key="secret-of-mine").what
    assert told.endswith("answers 401: said 401 to Bearer [key]")


def test_a_server_that_hangs_up_is_told_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        thread = threading.Thread(target=lambda: hang_up(listener))
        thread.start()
        with pytest.raises(ServerFault, match="ended the connection unanswered"):
            ask(address_of(f"http://{host}:{port}", "x", retries=0), "completions", asked())
        thread.join()


def hang_up(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.recv(1 << 16)
    connection.close()


@pytest.mark.parametrize(("ids", "told"), [((7,), "more tokens than"), ((), "more events than")])
def test_an_answer_that_never_ends_is_left(ids: tuple[int, ...], told: str) -> None:
    """By its ids, and without ids by its events."""
    reading = Reading(3, "http://a")

    def feed_on() -> None:
        for at_s in range(100):
            reading.feed(float(at_s), Piece(text="a", token_ids=ids, has_token=True))

    with pytest.raises(ServerFault, match=f"{told} the 3 tokens that were asked"):
        feed_on()


@pytest.mark.parametrize("finish", ["abort", "content_filter"])
def test_an_answer_that_its_server_gave_up_is_none(finish: str) -> None:
    reading = Reading(3, "http://a")
    reading.feed(1.0, Piece("a", (5,), finish, num_tokens=1, has_token=True))
    with pytest.raises(ServerFault, match=f"given up: {finish}, after 1 of 3 tokens"):
        reading.reply(0.0)


def test_ids_are_whole_numbers() -> None:
    for wrong in ([True], ["5"], [-1], [2**31], [1.0]):
        with pytest.raises(ServerFault, match="no whole numbers"):
            read("completions", {"choices": [{"text": "a", "token_ids": wrong}]})


@pytest.mark.parametrize(("sent", "told"), [(0, "before any token"), (2, "after 4 of 9 tokens")])
def test_a_stream_that_breaks_off_says_how_much_there_was(sent: int, told: str) -> None:
    with serving(plan=PLAN, cut_after=sent) as served:
        fault = fault_of(served)
    assert fault.kind == "cut"
    assert told in fault.what


def test_a_stream_that_ends_without_a_reason_is_no_answer() -> None:
    with serving(plan=PLAN, finish="") as served:
        assert "ends too early, after 9 of 9 tokens" in fault_of(served).what


def test_a_silent_server_is_a_fault_in_its_time() -> None:
    with serving(silent=True) as served:
        start = time.perf_counter()
        assert fault_of(served, timeout_s=0.3).kind == "timeout"
        assert time.perf_counter() - start < 1.0


def test_without_a_count_of_tokens_chunks_are_not_counted() -> None:
    with serving(usage=False) as served:
        assert "no count of tokens" in fault_of(served).what


def test_one_fault_in_a_batch_leaves_the_others() -> None:
    with serving(plan=PLAN, statuses=[400]) as served:
        found = ask_all(at(served), "completions", [asked()] * 3)
    assert (len(found.replies), len(found.faults)) == (2, 1)


@pytest.mark.parametrize(
    "text",
    [
        *("", "localhost:8000", "ftp://a", "http://", "http://a:99999", "http://u:secret@a"),
        *("http://[", "http://.", "http://a..b", f"http://{'a' * 64}.b", "http://a:0"),
        *("ftp://u:secret@a", "//u:secret@a", "http://u:secret@a:99999", "http://a:secret@a@b"),
    ],
)
def test_what_is_no_url_is_refused(text: str) -> None:
    """And no password is repeated."""
    with pytest.raises(UsageError) as caught:
        address_of(text, "--engine-arg url")
    assert "secret" not in " ".join(caught.value.lines())


def test_a_path_is_written_as_http_has_it() -> None:
    assert address_of("http://a/ä b%20c/v1", "x").path == "/%C3%A4%20b%20c"


def test_a_server_that_wants_a_key_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(handler: Handler) -> None:
        handler.send(401, "{}")

    monkeypatch.setattr(Handler, "do_GET", refusing)
    with serving() as served, pytest.raises(UsageError, match="answers 401") as caught:
        open_service(at(served), ["toy"], PROMPT, "test")
    assert "api_key_env" in caught.value.hint


def test_a_server_that_is_down_is_named() -> None:
    with serving() as served:
        url = served.url
    with pytest.raises(UsageError, match="cannot be reached") as caught:
        open_service(address_of(url, "x"), ["toy"], PROMPT, "--engine-arg url")
    assert url in caught.value.what


@pytest.mark.parametrize("name", ["toy", "owner/toy", "/models/toy", "toy/"])
def test_the_model_is_known_by_the_end_of_its_name(name: str) -> None:
    with serving(model="/data/toy") as served:
        found = open_service(at(served), [name], PROMPT, "x")
    assert (found.model, found.tool, found.api, found.context) == (
        "/data/toy", "vllm", "completions", 512,
    )  # fmt: skip
    assert found.counts


def test_another_model_behind_the_url_is_refused_unless_it_is_named() -> None:
    with serving(model="other") as served:
        with pytest.raises(UsageError, match="serves other, and not toy") as caught:
            open_service(at(served), ["toy"], PROMPT, "x")
        assert "model=other" in caught.value.hint
        assert open_service(at(served), ["toy"], PROMPT, "x", named="other").model == "other"


@pytest.mark.parametrize(
    ("takes", "prompt", "api"),
    [(("ids",), PROMPT, "completions"), (("text",), PROMPT, "text"), (("chat",), CHAT, "chat")],
)
def test_prompts_go_in_the_first_form_that_is_taken(
    takes: tuple[str, ...], prompt: Prompt, api: str
) -> None:
    with serving(takes=takes) as served:
        assert open_service(at(served), ["toy"], prompt, "x").api == api


def test_a_server_that_takes_no_form_is_refused_with_its_own_words() -> None:
    with serving(takes=()) as served, pytest.raises(UsageError, match="no prompt of ids"):
        open_service(at(served), ["toy"], CHAT, "x")


def test_a_server_without_metrics_counts_nothing() -> None:
    with serving(metrics=False) as served:
        found = open_service(at(served), ["toy"], PROMPT, "x")
        assert not found.counts
        assert found.grown(found.quiet(), 5, 1).counted() is None
