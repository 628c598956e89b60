"""Data sets on the hub: told apart when they cannot be had, quickly and in one line each."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.prompt_data import rows, written


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
from specbench.prompt_sets.prompts import load_prompts
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
