"""The table of engines: a name, what it is in one line, what it can do, where its class lives.

Pure data, so that recipes can be checked and listed without loading any model library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specbench.records import Sampling

OTHER_CLIENT = "another client"
"""In the reason of what was refused as a server's counters held somebody else's requests."""


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine as `ls engines` shows it, and what it is not asked for in vain."""

    name: str
    runs: str
    needs: str
    loads: str
    """`module:Class`, imported on use; made with `Settings`."""
    drafts: tuple[str, ...] | None = None
    """Draft kinds; None: all."""
    batches: bool = True
    """Whether it runs more than one prompt at a time."""
    sampled: bool = True
    """Whether it takes temperatures above 0."""
    filters: bool = True
    """Whether it takes top-k and top-p."""
    dtypes: tuple[str, ...] | None = None
    """Dtypes that can be asked for; None: all; empty: it has its own."""
    forwards: bool = False
    """Whether it takes forward modes other than eager."""
    random_weights: bool = False
    """Whether it can run a `config:` target."""
    in_process: bool = False
    """Whether its models are in this process."""
    cycles: bool = True
    """Whether it tells each cycle; else counts alone."""
    prompt_token: bool = False
    """Whether the prompt pass gives the first token, which then has no cycle."""
    options: tuple[str, ...] = ()
    """Names that `--engine-arg NAME=VALUE` takes."""
    differs: Mapping[str, str] = field(default_factory=dict)
    """Draft kinds that it has in another way than our own loop, and how."""
    warped: str = ""
    """How its models draft where a temperature other than 1, or a top-p, is asked for."""
    sampled_draft: str = ""
    """How its models draft at every temperature above 0, if not as in our own loop."""
    lossy: str = ""
    """Settings of it by which drafts are kept that the target's law would not keep."""
    any_options: bool = False
    """Whether it passes every `--engine-arg` on as it is."""
    own_python: bool = False
    """Whether it runs in an environment of its own, which `--engine-python` names."""

    def drafts_otherwise(self, kind: str, law: Sampling) -> str:
        """How its draft differs from ours under a law, in words; empty where it is the same.

        Its α is then that of another draft, which our own draft's law does not score.
        """
        if kind in self.differs:
            return self.differs[kind]
        if self.sampled_draft and not law.greedy:
            return self.sampled_draft
        plain = law.greedy or (law.temperature == 1.0 and law.top_p == 1.0)
        return "" if plain else self.warped


ENGINES: dict[str, EngineRow] = {
    row.name: row
    for row in (
        EngineRow(
            "torch",
            "our own loop, in this process",
            "–",
            "specbench.engines.torch_engine:TorchEngine",
            forwards=True,
            random_weights=True,
            in_process=True,
        ),
        EngineRow(
            "transformers",
            "stock generate, γ fixed",
            "–",
            "specbench.engines.transformers_engine:TransformersEngine",
            drafts=("hf", "ngram", "self"),
            batches=False,
            in_process=True,
            options=("device_map",),
            warped="its assistant goes through temperature and top-p twice",
            differs={"ngram": "its prompt lookup takes the first match, our own the last"},
        ),
        EngineRow(
            "llamacpp",
            "llama.cpp, started here",
            "xllamacpp",
            "specbench.engines.llamacpp_engine:LlamaCppEngine",
            drafts=("hf", "ngram", "self"),
            dtypes=(),
            cycles=False,
            prompt_token=True,
            options=("cache_type", "draft_sampling", "flash_attn", "gpu_layers", "start"),
            differs={"ngram": "its n-gram drafts copy after the last match of one length"},
            sampled_draft="its draft takes its likeliest token, kept if the target draws the same",
        ),
        EngineRow(
            "vllm",
            "vLLM, started here",
            "vLLM's Python",
            "specbench.engines.vllm_engine:VllmEngine",
            drafts=("hf", "ngram", "suffix", "eagle", "self"),
            dtypes=("float32", "bfloat16", "float16"),
            cycles=False,
            prompt_token=True,
            any_options=True,
            own_python=True,
            differs={
                "ngram": "its n-gram drafts copy after the first match",
                "suffix": "its suffix drafts are Arctic's",
                "eagle": "the head is one of vLLM's formats",
            },
            sampled_draft="its draft takes its likeliest token, kept with the target's p of it",
            lossy="FLy verification, and any acceptance method that its documents call lossy",
        ),
        EngineRow(
            "server",
            "OpenAI-compatible servers",
            "URL per gamma",
            "specbench.engines.server_engine:ServerEngine",
            drafts=("hf", "ngram", "suffix", "layerskip", "self"),
            dtypes=(),
            cycles=False,
            prompt_token=True,
            any_options=True,
            differs=dict.fromkeys(
                ("ngram", "suffix", "layerskip"), "the draft is the server's own"
            ),
            sampled_draft="which law a server drafts by is not known here",
            lossy="SGLang's --speculative-accept-threshold-single and -acc below 1, vLLM's FLy "
            "verification, and what else is called typical or relaxed acceptance",
        ),
    )
}
OWN = "torch"
"""Our own loop: what predicts, verifies and scores."""
