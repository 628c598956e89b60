"""Damaged model folders: refused in one message, or measured as the models that they are."""

from __future__ import annotations

import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import models
import pytest
import torch
from fuzz import bytes_of, document_of, run
from safetensors.torch import load_file, save_file

from specbench.errors import UsageError
from specbench.measure.preflight import get_ready
from specbench.models.loading import load_model, resolve
from specbench.models.sampling import first_max
from specbench.settings.recipe import default_recipe, merge_flags


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model and a file of prompts."""
    folder = tmp_path_factory.mktemp("models")
    models.save(models.build(vocab=16, num_hidden_layers=1), folder / "m", eos="w3")
    (folder / "p.txt").write_text("w1 w5 w9\nw4 w2\n", encoding="utf-8")
    return folder


CONFIG_VALUES: dict[str, tuple[Any, ...]] = {
    "vocab_size": (0, -1, 15, 17, 10**9, 1.5, "16", None),
    "hidden_size": (0, -32, 31, 64, 10**6, "x", None),
    "num_hidden_layers": (0, -1, 2, 10**5, 1.5, None),
    "num_attention_heads": (0, 3, -4, 64, None),
    "num_key_value_heads": (0, 3, 8, -1),
    "max_position_embeddings": (0, -1, 1, 2, 10**15, "128", None),
    "intermediate_size": (0, 1, 128, -1),
    "rms_norm_eps": (float("nan"), -1, "x", 0),
    "model_type": ("", "nope", "bert", "t5", "mamba", 3, None),
    "architectures": ([], ["Nope"], ["BertModel"], "x", None, [3]),
    "dtype": ("float16", "float8", "int8", 3, "x", None),
    "hidden_act": ("nope", 3, None),
    "rope_theta": (0, -1, float("inf")),
    "eos_token_id": (-1, 99, [1, 2], "w3", [], 1.5, [[1]], 10**30),
    "head_dim": (0, 3, 7, 10**4),
    "tie_word_embeddings": (True, "x"),
}


def damage_model(folder: Path, pick: random.Random) -> str:
    """Damage one file of a model, as text, as a document, or as tensors."""
    how = pick.choice(("config", "config", "weights", "weights", "json", "json", "bytes", "gone"))
    path = pick.choice(sorted(p for p in folder.iterdir() if p.is_file()))
    if how == "config":
        path = folder / "config.json"
        config = json.loads(path.read_text())
        key = pick.choice(list(CONFIG_VALUES))
        config[key] = pick.choice(CONFIG_VALUES[key])
        path.write_text(json.dumps(config))
        return f"{key} {config[key]!r}"[:60]
    if how == "weights":
        return _damage_weights(folder / "model.safetensors", pick)
    if how == "json":
        path = pick.choice(sorted(folder.glob("*.json")))
        found = document_of(json.loads(path.read_text()), pick)
        path.write_bytes(json.dumps(found).encode("utf-8", "surrogatepass"))
    elif how == "bytes":
        path.write_bytes(bytes_of(path.read_bytes(), pick))
    else:
        path.unlink()
    return f"{path.name} {how}"


def _damage_weights(path: Path, pick: random.Random) -> str:
    tensors = load_file(path)
    name = pick.choice(sorted(tensors))
    how = pick.choice(("gone", "shape", "dtype", "nan", "renamed", "header", "cut", "extra"))
    if how == "gone":
        del tensors[name]
    elif how == "shape":
        tensors[name] = tensors[name][..., :-1].clone()
    elif how == "dtype":
        tensors[name] = tensors[name].to(pick.choice((torch.int64, torch.float16, torch.bool)))
    elif how == "nan":
        tensors[name] = torch.full_like(tensors[name], pick.choice((float("nan"), float("inf"))))
    elif how == "renamed":
        tensors["x." + name] = tensors.pop(name)
    elif how == "extra":
        tensors["model.layers.7.x"] = torch.zeros(2)
    data = path.read_bytes()
    if how == "header":
        size = pick.choice((0, 1, 10**6, 2**63, 2**64 - 1))
        path.write_bytes(struct.pack("<Q", size) + data[8:])
    elif how == "cut":
        path.write_bytes(data[: pick.randrange(len(data))])
    else:
        save_file(tensors, path, metadata={"format": "pt"})
    return f"{name} {how}"


def check_model(sound: Path, folder: Path, seed: int) -> str:
    """As target and as draft: what is measured is what stock transformers says, else refused."""
    pick = random.Random(seed)
    shutil.copytree(sound / "m", folder)
    how = damage_model(folder, pick)
    run("validate", "-t", folder, "-d", folder)
    ends = []
    for target, draft in ((folder, "self"), (sound / "m", str(folder))):
        flags = {
            "target": str(target), "draft": [draft], "dataset": str(sound / "p.txt"), "gamma": "2",
            "max_new_tokens": "3", "temperature": "0,1", "threads": "1", "warmup": "0",
        }  # fmt: skip
        try:
            ready = get_ready(merge_flags(default_recipe(), flags))
        except UsageError as fault:
            ends.append(fault.where and "refused")
            continue
        ends.append("ready")
        if target == folder:
            check_text(ready)
        ready.engine.close()
    assert all(ends), "a refusal that does not say where"
    return f"{how}: {' '.join(ends)}"


def check_text(ready: Any) -> None:
    """The greedy text is that of the weights in the file, read afresh."""
    cell = next(c for b in ready.blocks for c in b.cells if c.gamma and c.sampling.greedy)
    for found in ready.engine.generate(cell, ready.prompts, 0):
        if found.status != "ok":
            assert found.reason
            continue
        model = ready.engine.target.model
        text = torch.tensor([[*found.prompt_token_ids, *found.token_ids]])
        with torch.inference_mode():
            logits = model(input_ids=text, use_cache=False).logits[0].float()
        size = len(found.token_ids)
        behind = logits[-size - 1 : -1]
        at = behind.gather(1, torch.tensor(found.token_ids).unsqueeze(1))[:, 0]
        assert (first_max(behind)[0] - at).max() < 1e-3


@pytest.mark.slow
def test_many_damaged_models(sound: Path, tmp_path: Path) -> None:
    for seed in range(1000, 1150):
        check_model(sound, tmp_path / str(seed), seed)


def test_few_damaged_models(sound: Path, tmp_path: Path) -> None:
    for seed in range(12):
        check_model(sound, tmp_path / str(seed), seed)


@pytest.mark.parametrize(
    ("layers", "lost", "said"),
    [
        (1, "model.norm.weight", "no model.norm.weight in its weights"),
        (2, "", "no model.layers.1.input_layernorm.weight and 8 more in its weights"),
        (-1, "", "-1 layers in its config"),
    ],
)
def test_weights_that_are_not_there_are_not_drawn_at_random(
    sound: Path, tmp_path: Path, layers: int, lost: str, said: str
) -> None:
    folder = shutil.copytree(sound / "m", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}))
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(lost, None)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError) as caught:
        load_model(resolve(str(folder), "--target"), device=torch.device("cpu"))
    assert said in caught.value.where


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("model.layers.1.mlp.up_proj.weight", "2 layers in its weights, 1 in its config"),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", ""),
    ],
)
def test_layers_that_the_config_lacks_are_not_left_out_in_silence(
    sound: Path, tmp_path: Path, added: str, said: str
) -> None:
    """Another tensor that is not used, such as a buffer of an older version, is no reason."""
    folder = shutil.copytree(sound / "m", tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors[added] = tensors["model.layers.0.mlp.up_proj.weight"].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    def load() -> object:
        return load_model(resolve(str(folder), "--target"), device=torch.device("cpu"))

    if not said:
        assert load()
        return
    with pytest.raises(UsageError) as caught:
        load()
    assert said in caught.value.where
