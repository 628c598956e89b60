"""Record what vLLM answers, for tests that replay it: `python -m scripts.record_vllm PYTHON FILE`.

PYTHON is that of an environment with vLLM. It serves the embedded pair in float32: without drafts,
with the small model, with n-grams, and with a comma as a second EOS, so that texts end inside
steps. Of each server the file holds the requests as they are sent, the events as they came, and
the counters between them. It takes some minutes, most of them for the servers' starts.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specbench.engines.vllm_engine import PATIENCE_S, REASON, free_port
from specbench.models import loading
from specbench.records import Prompt, Sampling
from specbench.serving.dialects import PATHS, Ask, body
from specbench.serving.hosting import Host, python_module
from specbench.serving.metrics import BUSY, NAMES
from specbench.serving.service import Service, open_service
from specbench.serving.transport import address_of, encoded, get, get_json, opened
from specbench.serving.vllm_command import Wanted, command, environment_for, installed
from specbench.serving.vllm_host import READY
from specbench.settings.places import EMBEDDED_FOLDER

NAME = "recorded"
START_S = 1800.0
TOKENS = 40
COPIED = (
    "the old man and the sea and the old man and the sea and the old man and the sea and the old"
)
PROMPTS = ("It was a dark night, and", "When the king heard of it, he", COPIED)
ENDING = ("Then", "There was", "She had been", "Sir")
"""Of the embedded pair's texts with these beginnings commas end some behind a draft's middle."""
COMMA = ","
DRAFTS: dict[str, dict[str, object]] = {
    "plain": {},
    "draft": {"method": "draft_model", "model": str(EMBEDDED_FOLDER / "draft")},
    "ngram": {"method": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 1},
    "eos": {"method": "draft_model", "model": str(EMBEDDED_FOLDER / "draft")},
}
GAMMA = 3


def main(python: str, file: str) -> None:
    """Serve, ask and write down."""
    known = installed(python)
    tokenizer = loading.load_tokenizer(loading.resolve("embedded", "--target"))
    servers = []
    with tempfile.TemporaryDirectory() as folder:
        for name, drafting in DRAFTS.items():
            target = ended_by_commas(Path(folder), tokenizer) if name == "eos" else EMBEDDED_FOLDER
            port = free_port()
            wanted = Wanted(
                str(target / "target"), NAME, port, dtype="float32",
                drafting={**drafting, "num_speculative_tokens": GAMMA} if drafting else {},
                passed=(("enforce_eager", "true"), ("max_model_len", "512")),
            )  # fmt: skip
            settings = {
                "command": command(known, wanted),
                "environment": environment_for(python, os.environ, 1),
                "url": wanted.url,
            }
            words = python_module("specbench.serving.vllm_host", json.dumps(settings))
            host = Host(words, READY, START_S, PATIENCE_S, REASON)
            try:
                prompts = ENDING if name == "eos" else PROMPTS
                about = {"name": name, "gamma": GAMMA if drafting else 0}
                servers.append({**about, **recorded(host.said, prompts, tokenizer)})
            finally:
                host.stop()
    found = {"package": known.package, "version": known.version, "servers": servers}
    Path(file).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def ended_by_commas(folder: Path, tokenizer: Any) -> Path:
    """A copy of the target that ends at a comma, too."""
    shutil.copytree(EMBEDDED_FOLDER / "target", folder / "target")
    path = folder / "target" / "generation_config.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    (comma,) = tokenizer(COMMA, add_special_tokens=False)["input_ids"][-1:]
    told["eos_token_id"] = [told["eos_token_id"], comma]
    path.write_text(json.dumps(told), encoding="utf-8")
    return folder


def recorded(url: str, texts: tuple[str, ...], tokenizer: Any) -> dict[str, Any]:
    """The models, the counters before and after each request, and the requests."""
    address = address_of(url, "record")
    models = get_json(address, "/v1/models")
    for entry in models["data"]:  # type: ignore[attr-defined]
        # Where this machine has the model is nobody's affair.
        entry["root"] = "target"
    probe = Prompt("probe", "", "The", tuple(tokenizer("The")["input_ids"]))
    service = open_service(address, [NAME], probe, "record")
    metrics, requests = [settled(service, 1)], []
    for number, text in enumerate(texts, 1):
        prompt = Prompt(str(number), "", text, tuple(tokenizer(text)["input_ids"]))
        asked = body("completions", Ask(NAME, prompt, Sampling(0.0), TOKENS, seed=0))
        with opened(address, "POST", PATHS["completions"], encoded(asked)) as answer:
            lines = answer.text().splitlines()
        events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        requests.append({"prompt": text, "body": asked, "events": events})
        metrics.append(settled(service, 1 + number))
    return {"models": models, "metrics": metrics, "requests": requests}


def settled(service: Service, requests: int) -> str:
    """The counters that are read, once they hold so many requests."""
    while service.quiet().values.get("requests", requests) < requests:
        pass
    kept = list(of_interest(get(service.address, "/metrics")))
    return "\n".join(kept) + "\n"


def of_interest(text: str) -> Iterator[str]:
    """Lines of the counters that the client reads, and the comments above them."""
    names: Mapping[str, None] = dict.fromkeys(
        [*BUSY, *(name for every in NAMES.values() for name in every)]
    )
    for line in text.splitlines():
        word = line.split()[2] if line.startswith("# ") else line.partition("{")[0]
        if word in names or f"{word}_total" in names:
            yield line


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m scripts.record_vllm PYTHON FILE")
    main(*sys.argv[1:])
