"""A server that says what a recorded one said, request after request (`scripts/record_vllm.py`)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "recorded" / "vllm.json"
PROBE = '{"choices": [{"index": 0, "text": "x", "token_ids": [1], "finish_reason": "length"}]}'
USAGE = '{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}'


def recorded() -> dict[str, Any]:
    """All that was recorded."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def server(name: str) -> dict[str, Any]:
    """One of the servers."""
    found: dict[str, Any] = next(one for one in recorded()["servers"] if one["name"] == name)
    return found


class Handler(BaseHTTPRequestHandler):
    """Answers in the order of the recording; another request than was recorded is refused."""

    protocol_version = "HTTP/1.1"
    said: dict[str, Any]
    done: list[int]
    """The number of requests that were answered."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self.answer(200, self.said["metrics"][self.done[0]], "text/plain")
        else:
            self.answer(200, json.dumps(self.said["models"]))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked.pop("cache_salt", None)
        if asked["max_tokens"] == 1:
            self.stream([PROBE, USAGE, "[DONE]"])
            return
        request = self.said["requests"][self.done[0]]
        if asked != request["body"] or self.path != "/v1/completions":
            self.answer(400, json.dumps({"error": {"message": "not what was recorded"}}))
            return
        self.done[0] += 1
        self.stream(request["events"])

    def stream(self, events: list[str]) -> None:
        self.answer(200, "".join(f"data: {event}\n\n" for event in events), "text/event-stream")

    def answer(self, status: int, text: str, kind: str = "application/json") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def replayed(said: dict[str, Any]) -> Iterator[str]:
    """The address of a server that says this."""
    handler = type("Own", (Handler,), {"said": said, "done": [0]})
    one = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    one.daemon_threads = True
    thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{one.server_address[1]}"
    finally:
        one.shutdown()
        one.server_close()
        thread.join()
