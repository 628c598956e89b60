"""What differs between versions of transformers, and between models, is found and not trusted.

`scripts/test_lowest.sh` runs this file and the engine's other tests under the lowest version.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from models import (
    COMMON,
    NO_IDS,
    build,
    drafter,
    itself,
    lm,
    noisy,
    outputs,
    plain,
    rnd,
    run,
    save,
)
from packaging.version import Version

from specbench.engines.selftest import self_test
from specbench.errors import PairRefused, UsageError
from specbench.models import attention, loading
from specbench.models.lm import CausalLM

OLD = Version(hf.__version__) < Version("5.20")
TEXTS = [[1, 5, 9], [(7 * i + 3) % 31 for i in range(30)], [4], [2, 17, 30, 4, 4, 8]]
BY_LAYER = ["sliding_attention", "full_attention"]
PLAIN = {k: v for k, v in COMMON.items() if k != "initializer_range"}
OTHERS: dict[str, dict[str, Any]] = {
    "Phi3Config": PLAIN,
    "GPTNeoXConfig": PLAIN,
    "Starcoder2Config": PLAIN,
    "StableLmConfig": PLAIN,
    "SmolLM3Config": PLAIN,
    "Olmo2Config": PLAIN,
    "GraniteConfig": PLAIN,
    "Cohere2Config": {**PLAIN, "head_dim": 8, "sliding_window": 8, "layer_types": BY_LAYER},
    "MixtralConfig": {**PLAIN, "num_local_experts": 4},
    "GptOssConfig": {
        **{**PLAIN, "head_dim": 8, "sliding_window": 8, "layer_types": BY_LAYER},
        **{"num_local_experts": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    },
    "Qwen3MoeConfig": {
        **{**PLAIN, "num_experts": 4, "num_experts_per_tok": 2},
        **{"moe_intermediate_size": 16, "head_dim": 8},
    },
}
NO_DOUBLE = ("MixtralConfig", "GptOssConfig", "Qwen3MoeConfig")
"""Their experts' kernel has no float64 on the CPU."""


CLOSE = {"gemma2": 1e-5}
"""Its stock attention has a float32 softmax, in float64 too."""


def other(name: str, sizes: dict[str, Any]) -> Any:
    """A tiny model of any class, all matrices N(0, .5²), float64 where it can be."""
    torch.manual_seed(0)
    config = getattr(hf, name)(vocab_size=32, **sizes)
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.5)
    return model if name in NO_DOUBLE else model.double()


@pytest.mark.parametrize("name", OTHERS)
def test_other_architectures(name: str) -> None:
    """Greedy identity in a ragged batch for what else people run; sinks and experts included."""
    model = other(name, OTHERS[name])
    target = lm(model)
    results = run(target, drafter(noisy(model), target), TEXTS, 3, max_new=10)
    assert outputs(results) == [plain(model, text, 10) for text in TEXTS]


def test_name_of_the_cache_argument() -> None:
    """The wrong name would vanish into keyword arguments, and the cache with it."""
    target = lm(rnd())
    assert target._cache_name in inspect.signature(target.model.forward).parameters
    assert target._cache_name == ("past_key_values" if OLD else "cache")


def test_the_cache_is_read() -> None:
    """The last token alone, fed behind a prefill, gives the logits of the whole text."""
    target = lm(rnd())
    tokens = torch.tensor([TEXTS[1]])
    session = target.session(1, 40)
    with torch.inference_mode():
        session.prefill(tokens, 29)
        got = session.feed(tokens, 29, 1, 30, keep=1)[:, -1]
        whole = rnd()(input_ids=tokens, use_cache=False).logits[:, -1]
    assert torch.allclose(got, whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "qwen3", "gemma3", "gemma2"])
def test_whole_text_without_a_cache(family: str) -> None:
    """Our attention without a cache, as scoring may run it: stock logits, with windows too."""
    tokens = torch.tensor([TEXTS[1]])
    with torch.inference_mode():
        ours = lm(rnd(family)).model(input_ids=tokens, use_cache=False).logits
        stock = rnd(family)(input_ids=tokens, use_cache=False).logits
    assert torch.allclose(ours, stock, rtol=0, atol=CLOSE.get(family, 1e-10))


FAMILIES = ["llama", "gpt2", "mistral", "qwen2", "qwen3", "gemma3", "gemma2"]


@pytest.mark.parametrize("family", FAMILIES)
def test_self_test_passes(family: str) -> None:
    """Rollback equals recomputation, in a ragged batch of four, float64."""
    found = self_test([lm(rnd(family))], TEXTS, 3, 32)
    assert found.worst < CLOSE.get(family, 1e-10)
    assert found.numeric_floor < 1e-12


def test_self_test_in_float32_and_bfloat16() -> None:
    """The floor that greedy ties and α of `self` are judged against is small."""
    single = self_test([lm(build())], TEXTS[:2], 3, 32)
    half = self_test([lm(build().to(torch.bfloat16))], TEXTS[:2], 3, 32)
    assert 0 <= single.numeric_floor < 1e-4
    assert 0 <= half.numeric_floor < 0.1


@pytest.mark.parametrize("coarse", [False, True])
def test_self_test_finds_a_broken_rollback(monkeypatch: pytest.MonkeyPatch, coarse: bool) -> None:
    """A model that sees a rejected token is refused: here every position sees all slots."""
    broken = lm(rnd())
    broken.coarse = coarse
    monkeypatch.setattr(
        CausalLM,
        "mask",
        lambda self, at, visible: torch.zeros(*at.shape[:1], 1, at.shape[1], visible),
    )
    with pytest.raises(PairRefused):
        self_test([broken], TEXTS, 3, 32)


def test_self_test_of_coarse_inputs() -> None:
    """Numbers that depend on how many tokens are fed together do not stand for a broken cache."""
    model = lm(rnd())
    layer = model.model.model.layers[0].mlp.down_proj

    def shaken(module: torch.nn.Module, given: tuple[torch.Tensor], out: torch.Tensor) -> Any:
        noise = torch.randn(out.shape, generator=torch.Generator().manual_seed(out.shape[1]))
        return out + 0.05 * noise.to(out.dtype)

    layer.register_forward_hook(shaken)
    with pytest.raises(PairRefused):
        self_test([model], TEXTS[1:2], 3, 32)
    model.coarse = True
    assert self_test([model], TEXTS[1:2], 3, 32).worst < 1e-10


REFUSED = {
    "OPTConfig": {**PLAIN, "ffn_dim": 64, "word_embed_proj_dim": 32, "init_std": 0.5},
    "BloomConfig": {"hidden_size": 32, "n_layer": 2, "n_head": 4, **NO_IDS},
    "FalconConfig": PLAIN,
    "MptConfig": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 128},
    "GPTNeoConfig": {
        **{"hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 8, **NO_IDS},
        "attention_types": [[["global", "local"], 1]],
    },
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_served_is_refused(name: str, tmp_path: Path) -> None:
    """Either right, or one message before anything is measured; never another exception."""
    model = other(name, REFUSED[name])
    source = loading.resolve(str(save(model, tmp_path / "m")), "--target")
    try:
        loaded = loading.load_model(source, device=torch.device("cpu"), dtype="float64")
        target = CausalLM(loaded, "target")
        self_test([target], TEXTS, 3, 32)
    except (PairRefused, UsageError):
        return
    results = run(target, itself(target), TEXTS, 3, max_new=10)
    assert outputs(results) == [plain(model, text, 10) for text in TEXTS]


def test_registering_twice_is_harmless() -> None:
    """Every model that is loaded registers the attention."""
    assert attention.register() == attention.register() == attention.NAME
