"""Load a causal LM and its tokenizer from a folder, a .gguf file, the cache or the hub.

Every failure that a user can cause becomes one message: what, where, what to try.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as hf_logging

from specbench.errors import UsageError
from specbench.models import attention
from specbench.models.random_models import is_random, random_model, tokenizer_folder
from specbench.settings.model_refs import Source as Source
from specbench.settings.model_refs import missing
from specbench.settings.model_refs import resolve as resolve
from specbench.settings.places import EMBEDDED_FOLDER
from specbench.wording import count

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def load_tokenizer(source: Source, *, trust_remote_code: bool = False) -> Any:
    """The model's tokenizer; of a config without one, that of the embedded pair."""
    path = source.path
    if source.random:
        path = str(tokenizer_folder(Path(source.path)) or EMBEDDED_FOLDER / "target")
    with _explained(source, "tokenizer"):
        return AutoTokenizer.from_pretrained(
            path, trust_remote_code=trust_remote_code, **source.kwargs
        )


def load_model(
    source: Source,
    *,
    device: torch.device,
    dtype: str | None = None,
    trust_remote_code: bool = False,
    device_map: str | None = None,
) -> Any:
    """The model in eval mode with our attention, on the device, in `dtype`.

    Without a dtype: the checkpoint's, but float32 on the CPU. With a device map its layers lie
    where accelerate puts them, and it says so in `hf_device_map`.
    """
    if source.random:
        config = load_config(source, trust_remote_code=trust_remote_code)
        return random_of(source, config, device, dtype)
    wanted: Any = DTYPES[dtype] if dtype else (torch.float32 if device.type == "cpu" else "auto")
    spread = {"device_map": device_map} if device_map else {}
    with _explained(source, "model"):
        model, told = AutoModelForCausalLM.from_pretrained(
            source.path,
            dtype=wanted,
            attn_implementation=attention.register(),
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
            **spread,
            **source.kwargs,
        )
    _refuse_other_weights(
        source, model, sorted(told["missing_keys"]), sorted(told["unexpected_keys"])
    )
    return (model if device_map else model.to(device)).eval()


def _refuse_other_weights(
    source: Source, model: Any, lacking: Sequence[str], beyond: Sequence[str]
) -> None:
    """Weights that a checkpoint lacks would be drawn at random, and measured; so would none.

    Layers that the config does not have would be left out in silence. What else is not used may
    be a buffer of an older version, or a part that the architecture itself leaves aside.
    """
    layers = getattr(model.config.get_text_config(decoder=True), "num_hidden_layers", 1)
    numbers = [int(n[1]) for name in beyond if (n := re.search(r"\.(?:layers|h)\.(\d+)\.", name))]
    extra = max(numbers, default=-1) + 1
    if not lacking and layers > 0 and extra <= layers:
        return
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    if lacking:
        found = f"no {lacking[0]}{more} in its weights"
    elif layers > 0:
        found = f"{count(extra, 'layer')} in its weights, {layers} in its config"
    else:
        found = f"{count(layers, 'layer')} in its config"
    raise UsageError(
        f"the weights of {source.ref} are not those of its config.json",
        where=f"{source.flag} {source.ref}: {found}",
        hint="the whole checkpoint, with the config.json that it was saved with",
    )


def random_of(source: Source, config: Any, device: torch.device, dtype: str | None) -> Any:
    """Random weights in the shape of a config; without a dtype its own, but float32 on the CPU."""
    own = getattr(config, "dtype", None) if device.type == "cuda" else None
    wanted = DTYPES[dtype] if dtype else own or torch.float32
    with _explained(source, "model"):
        return random_model(config, device, wanted, f"{source.flag} {source.ref}")


def eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """EOS ids: of the generation config, else of the config, else of the tokenizer.

    Nothing else is taken from a generation config: no temperature, no top-k, no penalty. Random
    weights end no text.
    """
    if is_random(model):
        return frozenset()
    for holder in (getattr(model, "generation_config", None), model.config, tokenizer):
        found = getattr(holder, "eos_token_id", None)
        if found is not None:
            return frozenset(
                int(i) for i in (found if isinstance(found, list | tuple) else [found])
            )
    return frozenset()


def load_config(source: Source, *, trust_remote_code: bool = False) -> Any:
    """The model's config alone."""
    with _explained(source, "config"):
        return AutoConfig.from_pretrained(
            source.path, trust_remote_code=trust_remote_code, **source.kwargs
        )


def pick_device(name: str | None) -> torch.device:
    """The device asked for, or CUDA if present; an absent one is refused."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as err:
        raise UsageError(f"--device {name}: no such device", hint="cpu, cuda or cuda:0") from err
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device {name}: only cpu and cuda are supported", hint="--device cpu")
    if device.type == "cuda":
        _check_cuda(name, device)
    return device


def _check_cuda(name: str, device: torch.device) -> None:
    if not torch.version.cuda:
        raise UsageError(
            f"--device {name}: torch {torch.__version__} was built without CUDA",
            hint="--device cpu, or install a CUDA build of torch",
        )
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise UsageError(
            f"--device {name}: this machine shows {count} CUDA devices", hint="--device cpu"
        )


def check_dtype(name: str | None, device: torch.device, flag: str = "--dtype") -> None:
    """Refuse a dtype that torch, or this device, does not have."""
    if name is None:
        return
    if name not in DTYPES:
        raise UsageError(f'{flag} "{name}": unknown dtype', hint=", ".join(DTYPES))
    try:
        one = torch.ones(2, 2, dtype=DTYPES[name], device=device)
        torch.nn.functional.linear(one, one)
    except RuntimeError as err:
        raise UsageError(
            f"{flag} {name}: {device.type} cannot multiply matrices in it",
            where=str(err).splitlines()[0],
            hint=f"{flag} float32",
        ) from err


@contextmanager
def _explained(source: Source, what: str) -> Iterator[None]:
    """Turn what transformers raises on a bad reference into one message."""
    level = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    # Each try to reach the hub would be told, and then what came of them all.
    hub = logging.getLogger("huggingface_hub")
    told = hub.level
    hub.setLevel(logging.ERROR)
    # The GGUF reader draws a bar of its own that heeds no setting.
    silent = redirect_stderr(StringIO()) if source.gguf_file else nullcontext()
    try:
        with silent, quiet_bars():
            yield
    except UsageError:
        raise
    except ImportError as err:
        raise UsageError(
            f"cannot load the {what} of {source.ref}",
            where=_reason(err),
            hint="pip install 'specbench-sd[gguf]'"
            if source.gguf_file
            else "install what is named",
        ) from err
    except torch.OutOfMemoryError as err:
        raise UsageError(
            f"{source.ref} does not fit into memory",
            where=f"{source.flag} {source.ref}",
            hint="a smaller --dtype, or a smaller model",
        ) from err
    except Exception as err:  # transformers raises anything here; all of it is about this reference
        raise _explain(source, what, err) from err
    finally:
        hf_logging.set_verbosity(level)
        hub.setLevel(told)


@contextmanager
def quiet_bars() -> Iterator[None]:
    """No progress bars of transformers' own."""
    bars = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            hf_logging.enable_progress_bar()


def _explain(source: Source, what: str, err: Exception) -> UsageError:
    where = f"{source.flag} {source.ref}"
    names = {type(e).__name__ for e in _chain(err)}
    text = " ".join(str(e) for e in _chain(err))
    if source.local or "trust_remote_code" in text or not any(map(_from_outside, _chain(err))):
        return UsageError(
            f"cannot load the {what} of {source.ref}",
            where=f"{where}: {_reason(err)}",
            hint=_load_hint(source, text),
        )
    if "GatedRepoError" in names or "gated repo" in text.lower():
        return UsageError(
            f"{source.ref} is gated: access has to be asked for",
            where=where,
            hint="accept the licence on the hub, then hf auth login",
        )
    offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0", "false", "False")
    if not offline and names & {"RepositoryNotFoundError", "HFValidationError"}:
        return UsageError(
            f"the hub has no model {source.ref}",
            where=where,
            hint="check the spelling; a private one needs hf auth login",
        )
    if "HFValidationError" in names or ("is not a valid model identifier" in text and not offline):
        return missing(source.ref, source.flag, "no such folder, and no hub id")
    note = " (HF_HUB_OFFLINE=1)" if offline else ""
    return UsageError(
        "the hub cannot be reached and the model is not in the cache",
        where=where + note,
        hint=("unset HF_HUB_OFFLINE, or give" if offline else "check the network, or give")
        + " a local folder or a .gguf file",
    )


def _load_hint(source: Source, text: str) -> str:
    """What to try where a model that was found cannot be loaded."""
    if "trust_remote_code" in text:
        return "--trust-remote-code, if you trust its code; or a model that needs none"
    if source.random:
        return "a config.json as its author published it, of a decoder that transformers knows"
    return "the whole folder as it was saved, of a decoder that transformers knows"


def _from_outside(err: BaseException) -> bool:
    """Whether the hub, the network or a disk raised this, and not a model's config or weights."""
    hub = type(err).__module__.partition(".")[0] in ("huggingface_hub", "httpx", "requests")
    return hub or isinstance(err, OSError)


def _chain(err: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = err
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _reason(err: BaseException) -> str:
    """The first line of an error, with the next where it only announces that; a key's by name."""
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    if not lines:
        return type(err).__name__
    if isinstance(err, KeyError):
        return f"no such key or name: {lines[0]}"
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
