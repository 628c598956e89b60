"""A small HTTP server that answers as vLLM, llama.cpp or SGLang do, step by step, with faults.

Formats are those of the tools' documentation; llama.cpp's were also seen on a running server
(`tests/test_llamacpp_live.py`). What is planned is known, so that tests can count by hand.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Plan = Sequence[tuple[int, int]]
"""Steps behind the prompt pass: tokens drafted and kept."""
PLANNED: Plan = ((3, 2), (3, 0), (3, 3))


@dataclass
class Served:
    """What the server does; all of it may be changed while it runs."""

    tool: str = "vllm"
    model: str = "toy"
    gamma: int = 3
    plan: Plan = ()
    """Empty: steps without a draft."""
    finish: str = "length"
    eos: int | None = None
    """The id that ends a text, where `finish` is an EOS."""
    step_s: float = 0.0
    metrics: bool = True
    takes: tuple[str, ...] = ("ids", "text", "chat")
    statuses: list[int] = field(default_factory=list)
    """Of the next requests, before they are answered."""
    echo: bool = False
    """Whether a refusal repeats the client's key."""
    retry_after: str = ""
    cut_after: int | None = None
    """Events after which the connection is closed."""
    silent: bool = False
    usage: bool = True
    ids: bool = True
    """Whether token ids are given back."""
    block: str = ""
    """vLLM's metrics of a request: `lengths`, `summary` or `detailed`."""
    other_tokens: int = 0
    """Tokens of another client that are counted with each request."""
    reset: bool = False
    """Whether the counters start again with the next request."""
    running: int = 0
    late_s: float = 0.0
    """After the last event, before the counters hold it."""
    hidden: frozenset[int] = frozenset()
    """Tokens that come with the next one: halves of a character."""
    counted: dict[str, int] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)
    """Of each restart through `/control`, its γ."""
    url: str = ""
    lock: Any = field(default_factory=threading.Lock)

    def steps(self, tokens: int) -> Iterator[tuple[int, int, int]]:
        """Drafted, kept and emitted, until so many tokens are there."""
        left, at = tokens - 1, 0
        while left:
            drafted, kept = self.plan[at % len(self.plan)] if self.plan else (0, 0)
            if self.tool != "vllm":
                drafted, kept = min(drafted, left), min(kept, left)
            if self.tool == "llamacpp":
                # It drafts no more than what can still be delivered.
                drafted = min(drafted, left - 1)
                kept = min(kept, drafted)
            emitted = min(kept + 1, left)
            yield drafted, kept, emitted
            left, at = left - emitted, at + 1

    def count(self, tokens: int, steps: list[tuple[int, int, int]]) -> None:
        """Book a request."""
        with self.lock:
            if self.reset:
                self.counted, self.kept, self.reset = {}, [], False
            drafts = [(drafted, kept) for drafted, kept, _ in steps if drafted]
            for name, more in (
                ("requests", 1 + bool(self.other_tokens)),
                ("tokens", tokens + self.other_tokens),
                ("drafts", len(drafts)),
                ("drafted", sum(d for d, _ in drafts)),
                ("accepted", sum(k for _, k in drafts)),
            ):
                self.counted[name] = self.counted.get(name, 0) + more
            self.kept += [0] * (self.gamma - len(self.kept))
            for _, kept in drafts:
                for at in range(kept):
                    self.kept[at] += 1


NAMES = {
    "vllm": {
        "requests": 'vllm:request_success_total{engine="0",finished_reason="length"}',
        "tokens": 'vllm:generation_tokens_total{engine="0",model_name="toy"}',
        "drafts": 'vllm:spec_decode_num_drafts_total{engine="0",model_name="toy"}',
        "drafted": 'vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="toy"}',
        "accepted": 'vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="toy"}',
        "kept": 'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="%d"}',
        "running": 'vllm:num_requests_running{engine="0",model_name="toy"}',
    },
    "llamacpp": {
        "tokens": "llamacpp:tokens_predicted_total",
        "drafts": "llamacpp:spec_decode_num_drafts_total",
        "drafted": "llamacpp:spec_decode_num_draft_tokens_total",
        "accepted": "llamacpp:spec_decode_num_accepted_tokens_total",
        "kept": 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="%d"}',
        "running": "llamacpp:requests_processing",
    },
    "sglang": {
        "requests": 'sglang:num_requests_total{model_name="toy"}',
        "tokens": 'sglang:generation_tokens_total{model_name="toy"}',
        "running": 'sglang:num_running_reqs{model_name="toy"}',
    },
}


def metrics_text(served: Served) -> str:
    """Counters in Prometheus' text format, as the tools print them."""
    names = NAMES[served.tool]
    lines = [f"# HELP {n.partition('{')[0]} Help.\n# TYPE x counter" for n in names.values()]
    for name, label in names.items():
        if name == "running":
            lines.append(f"{label} {float(served.running)}")
        elif name == "kept":
            lines += [f"{label % at} {float(n)}" for at, n in enumerate(served.kept)]
        elif served.gamma or name in ("requests", "tokens"):
            lines.append(f"{label} {float(served.counted.get(name, 0))}")
    return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    served: Served

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        served = self.served
        if self.path == "/v1/models":
            entry = {"id": served.model, "owned_by": served.tool, "max_model_len": 512}
            self.send(200, json.dumps({"object": "list", "data": [entry]}))
        elif self.path == "/metrics" and served.metrics:
            self.send(200, metrics_text(served), "text/plain; version=0.0.4")
        else:
            self.send(404, json.dumps({"error": {"message": "not found"}}))

    def send(self, status: int, text: str, kind: str = "application/json") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if self.served.retry_after:
            self.send_header("Retry-After", self.served.retry_after)
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        served = self.served
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/control":
            served.restarts.append(asked["gamma"])
            served.plan, served.gamma = (PLANNED if asked["gamma"] else ()), asked["gamma"]
            served.counted, served.kept = {}, []
            self.send(200, "{}")
            return
        with served.lock:
            served.bodies.append({**asked, "path": self.path})
            status = served.statuses.pop(0) if served.statuses else 200
        if status != 200:
            told = f" to {self.headers['Authorization']}" if served.echo else ""
            self.send(status, json.dumps({"error": {"message": f"said {status}{told}"}}))
            return
        refused = self.refused(asked)
        if refused:
            self.send(400, json.dumps({"error": {"message": refused}}))
            return
        self.stream(asked)

    def refused(self, asked: dict[str, Any]) -> str:
        salt = str(asked.get("cache_salt", ""))
        if len(salt) > 128 or set(salt) & set("@/\\\0"):
            # As vLLM 0.32.0 does.
            return "Parameter 'cache_salt' must not contain '@', '/', '\\\\', or NUL"
        kind = "chat" if "messages" in asked else "text"
        if isinstance(asked.get("prompt", asked.get("input_ids")), list):
            kind = "ids"
        return "" if kind in self.served.takes else f"no prompt of {kind}"

    def stream(self, asked: dict[str, Any]) -> None:
        served = self.served
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        law = asked.get("sampling_params", {})
        tokens = asked.get("max_tokens", asked.get("n_predict", law.get("max_new_tokens")))
        steps = list(served.steps(tokens))
        if served.silent:
            time.sleep(1.5)
            return
        for number, event in enumerate(EVENTS[served.tool](served, asked, tokens, steps)):
            if number == served.cut_after:
                self.close_connection = True
                return
            self.chunk(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
        if served.late_s:
            threading.Timer(served.late_s, served.count, (tokens, steps)).start()
        else:
            served.count(tokens, steps)
        self.chunk("")

    def chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def token(served: Served, number: int, tokens: int) -> int:
    """The id of a token, counted from 1."""
    return served.eos if number == tokens and served.eos is not None else 100 + number


def prompt_tokens(asked: dict[str, Any]) -> int:
    """Of ids, their number; of text, its words."""
    prompt = asked.get("prompt", asked.get("input_ids", ""))
    return len(prompt) if isinstance(prompt, list) else len(prompt.split())


def vllm_events(served: Served, asked: Any, tokens: int, steps: Any) -> Iterator[Any]:
    """An event per step, then usage, then the mark of the end."""
    at = 0
    for emitted in (1, *(step[2] for step in steps)):
        time.sleep(served.step_s)
        ids = [token(served, at + n, tokens) for n in range(1, emitted + 1)]
        at += emitted
        text = "".join(f" t{i}" for i in ids if i != served.eos)
        last = served.finish if at == tokens else None
        said = {"delta": {"content": text}} if "messages" in asked else {"text": text}
        choice = {"index": 0, **said, "finish_reason": last}
        if asked.get("return_token_ids") and served.ids:
            choice["token_ids"] = ids
        yield {"id": "cmpl-1", "choices": [choice]}
    if served.usage:
        prompt = prompt_tokens(asked)
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens}
        yield {"id": "cmpl-1", "choices": [], "usage": usage, **vllm_block(served, steps)}
    yield "[DONE]"


def vllm_block(served: Served, steps: Any) -> dict[str, Any]:
    """`--per-request-spec-decode-metrics`, as 0.32.0 has it, or by draft length."""
    if not served.block:
        return {}
    drafts = [(drafted, kept) for drafted, kept, _ in steps if drafted]
    found: dict[str, Any] = {
        "num_spec_tokens": served.gamma,
        "num_spec_steps": len(drafts),
        "num_draft_tokens": sum(d for d, _ in drafts),
        "num_accepted_draft_tokens": sum(k for _, k in drafts),
    }
    dense = [0] * (served.gamma + 1)
    lengths: dict[str, list[int]] = {}
    for drafted, kept in drafts:
        dense[kept] += 1
        lengths.setdefault(str(drafted), [0] * (drafted + 1))[kept] += 1
    if served.block == "lengths":
        found["acceptance_histogram_by_draft_length"] = lengths
    else:
        found["acceptance_histogram"] = dense
    if served.block == "detailed" and drafts:
        found["per_step_drafted"] = [d for d, _ in drafts]
        found["per_step_accepted"] = [k for _, k in drafts]
    return {"metrics": {"speculative_decoding": found}}


def llamacpp_events(served: Served, asked: Any, tokens: int, steps: Any) -> Iterator[Any]:
    """An event per token, each with the counts after its step."""
    assert asked["timings_per_token"]
    assert asked["return_tokens"]
    at = drafted = accepted = 0
    for more, kept, emitted in [(0, 0, 1), *steps]:
        time.sleep(served.step_s)
        drafted, accepted = drafted + more, accepted + kept
        for _ in range(emitted):
            at += 1
            counts = {"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {}
            times = {"cache_n": 0, "prompt_n": prompt_tokens(asked), "predicted_n": at, **counts}
            if at not in served.hidden:
                one = token(served, at, tokens)
                text = "" if one == served.eos else f" t{one}"
                yield {"content": text, "tokens": [one], "stop": False, "timings": times}
    stop = "eos" if served.eos is not None else "limit"
    yield {"content": "", "tokens": [], "stop": True, "stop_type": stop, "timings": times}


def sglang_events(served: Served, asked: Any, tokens: int, steps: Any) -> Iterator[Any]:
    """All ids so far with each step."""
    ids: list[int] = []
    for number, emitted in enumerate((1, *(step[2] for step in steps))):
        time.sleep(served.step_s)
        ids += [token(served, len(ids) + n, tokens) for n in range(1, emitted + 1)]
        meta: dict[str, Any] = {"prompt_tokens": prompt_tokens(asked)}
        meta["completion_tokens"] = len(ids)
        meta["finish_reason"] = None if len(ids) < tokens else {"type": served.finish}
        if served.gamma:
            meta["spec_verify_ct"] = number
            meta["spec_accept_token_num"] = sum(s[1] for s in steps[:number])
            meta["spec_draft_token_num"] = sum(s[0] for s in steps[:number])
        yield {"text": "".join(f" t{i}" for i in ids), "output_ids": ids, "meta_info": meta}
    yield "[DONE]"


EVENTS = {"vllm": vllm_events, "llamacpp": llamacpp_events, "sglang": sglang_events}


@contextmanager
def serving(**about: Any) -> Iterator[Served]:
    """A server while it lasts."""
    served = Served(**about)
    handler = type("Own", (Handler,), {"served": served})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
