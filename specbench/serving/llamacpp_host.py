"""A llama.cpp server, run by `python -m specbench.serving.llamacpp_host SETTINGS`.

In a process of its own, so that what crashes it cannot take a run along. It prints its address as
soon as it listens, and ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

READY = "listening at "


def main(argv: list[str]) -> None:
    """Serve until nobody listens any more."""
    import xllamacpp

    settings: dict[str, Any] = json.loads(argv[0])
    try:
        server = xllamacpp.Server(params_of(xllamacpp, settings))
    except RuntimeError as err:
        # What llama.cpp had to say of it stands above, in its own log.
        sys.exit(str(err))
    print(f"{READY}{server.listening_address}", flush=True)
    sys.stdin.buffer.read()
    # Freeing the models of a server that is going away anyway can take seconds.
    os._exit(0)


def params_of(xllamacpp: Any, settings: dict[str, Any]) -> Any:
    """The parameters of a server: what is asked for, and nothing that changes by itself.

    `settings` has model, context (tokens of a slot), slots, threads, gamma, and for γ > 0 either
    draft (a file) or ngram (a length); cache_type, draft_sampling, flash_attn and gpu_layers where
    they were given.
    """
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["context"] * settings["slots"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.endpoint_metrics = True
    params.fit_params = False
    params.kv_unified = False
    params.ctx_shift = False
    params.cache_prompt = False
    params.cache_ram_mib = 0
    _place(params, settings, settings.get("threads"))
    _cache(xllamacpp, params, settings)
    if settings["gamma"]:
        _speculate(xllamacpp, params.speculative, settings)
    return params


def _speculate(xllamacpp: Any, speculative: Any, settings: dict[str, Any]) -> None:
    """Drafts of γ tokens: no least probability ends them early, none is the least number."""
    kinds = xllamacpp.common_speculative_type
    if "ngram" in settings:
        speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        speculative.ngram_simple.size_n = settings["ngram"]
        speculative.ngram_simple.size_m = settings["gamma"]
        speculative.ngram_simple.min_hits = 1
        return
    speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    draft = speculative.draft
    draft.mparams.path = settings["draft"]
    draft.n_max = settings["gamma"]
    draft.n_min = 0
    draft.p_min = 0.0
    draft.probabilistic = settings.get("draft_sampling") == "probabilistic"
    _place(draft, settings, settings.get("threads"))
    _cache(xllamacpp, draft, settings)


def _place(params: Any, settings: dict[str, Any], threads: int | None) -> None:
    if threads:
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
    if "gpu_layers" in settings:
        params.n_gpu_layers = settings["gpu_layers"]


def _cache(xllamacpp: Any, params: Any, settings: dict[str, Any]) -> None:
    if "cache_type" in settings:
        kind = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{settings['cache_type'].upper()}")
        params.cache_type_k = params.cache_type_v = kind
    if "flash_attn" in settings and hasattr(params, "flash_attn_type"):
        names = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
        name = f"LLAMA_FLASH_ATTN_TYPE_{names[settings['flash_attn']]}"
        params.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, name)


if __name__ == "__main__":
    main(sys.argv[1:])
