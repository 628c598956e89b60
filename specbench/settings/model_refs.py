"""What a reference to a model is, found out without torch, so that a wrong one is told at once."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from specbench.errors import UsageError
from specbench.settings.places import EMBEDDED_FOLDER
from specbench.settings.recipe_values import CONFIG


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from, as transformers wants it."""

    ref: str
    """As the user typed it."""
    flag: str
    """The flag or key that named it, for messages."""
    path: str
    gguf_file: str | None = None
    random: bool = False
    """Whether only a config is there, and weights are to be random."""

    @property
    def local(self) -> bool:
        """Whether it is a folder or a config on this machine."""
        return self.random or Path(self.path).is_dir()

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments that every `from_pretrained` gets."""
        return {"gguf_file": self.gguf_file} if self.gguf_file else {}


def resolve(ref: str, flag: str, kind: str = "") -> Source:
    """Find out what a reference is; a wrong path is refused here, before anything heavy.

    `kind` is that of a draft, for the message.
    """
    if ref in ("embedded", "embedded/target", "embedded/draft") and not Path(ref).exists():
        draft = ref == "embedded/draft" or (ref == "embedded" and flag == "--draft")
        part = "draft" if draft else "target"
        return Source(ref, flag, str(EMBEDDED_FOLDER / part))
    if ref.startswith(CONFIG):
        return Source(ref, flag, str(config_file(ref, flag)), random=True)
    _refuse_server(ref, flag)
    path = Path(ref).expanduser()
    if ref.endswith(".gguf"):
        if not path.is_file():
            raise missing(ref, flag, "the file does not exist", kind)
        return Source(ref, flag, str(path.parent), path.name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise missing(ref, flag, "the folder has no config.json", kind)
        return Source(ref, flag, str(path))
    if path.is_file():
        raise missing(ref, flag, "it is a file, but no .gguf file", kind)
    if "/" not in ref and get_close_matches(ref, ["embedded"], cutoff=0.85):
        raise UsageError(
            f"no model at {ref}", where=f"{flag} {ref}: no such folder", hint=f"{flag} embedded"
        )
    if ref.startswith((".", "/", "~")) or ref.count("/") > 1 or not ref.strip():
        raise missing(ref, flag, "the folder does not exist", kind)
    return Source(ref, flag, ref)


def _refuse_server(ref: str, flag: str) -> None:
    """Refuse a server that is given in place of a model."""
    if not ref.lower().startswith(("http://", "https://")):
        return
    url = "--engine-arg url.G=http://HOST:PORT"
    raise UsageError(
        f"{ref} is a server, not a model",
        where=f"{flag} {ref}",
        hint=f"--target NAME --engine server {url}, one for each γ G, 0 for the baseline"
        if flag == "--target"
        else f"--draft with the name of what the server drafts with; its address goes in {url}",
    )


def config_file(ref: str, flag: str) -> Path:
    """The `config.json` that a reference such as `config:FILE` or `config:FOLDER` names."""
    path = Path(ref.removeprefix(CONFIG)).expanduser()
    found = path / "config.json" if path.is_dir() else path
    if not found.is_file():
        raise UsageError(
            f"no config at {path}",
            where=f"{flag} {ref}: a config.json, or a folder that holds one",
            hint="download the model's config.json alone; weights are not needed",
        )
    return found


def missing(ref: str, flag: str, why: str, kind: str = "") -> UsageError:
    """What is said of a reference behind which there is no model."""
    if kind == "eagle":
        return UsageError(
            f"no EAGLE head at {ref}",
            where=f"{flag} eagle:{ref}: {why}",
            hint=f"specbench train-draft -t TARGET --kind eagle -o {ref}",
        )
    parent = str(Path(ref).parent)
    return UsageError(
        f"no model at {ref or '(empty)'}",
        where=f"{flag} {ref}: {why}",
        hint=f"ls {parent}; or a hub id such as HuggingFaceTB/SmolLM2-135M",
    )
