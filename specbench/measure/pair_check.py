"""Check target and drafts from their tokenizers and configs, without reading a weight."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specbench.drafts.pairing import check_vocabularies
from specbench.kinds import KINDS
from specbench.models import loading
from specbench.models.eagle_head import shape_in
from specbench.models.lm import UNLIMITED, context_limit, windows_of
from specbench.settings.recipe import default_recipe, merge_flags


def check_pair(target: str, drafts: Sequence[str], *, trust_remote_code: bool = False) -> list[str]:
    """One line per draft that can be paired; the first that cannot is refused."""
    recipe = merge_flags(default_recipe(), {"target": target, "draft": list(drafts)})
    label = recipe.target.label
    tokenizer, config = _opened(recipe.target.location, "--target", trust_remote_code)
    windows_of(config, label)
    wide = config.hidden_size
    lines = [f"{label}: {len(tokenizer.get_vocab()):,} tokens, {_context(config)}"]
    for spec in recipe.drafts:
        if not spec.model:
            lines.append(f"ok  {spec.label}: drafts with {KINDS[spec.kind].drafts_with}")
            continue
        other, config = _opened(spec.model, "--draft", trust_remote_code, spec.kind)
        check_vocabularies(tokenizer, other, label, spec.label)
        windows_of(config, spec.label)
        if spec.kind == "eagle":
            shape_in(Path(spec.model).expanduser(), int(wide), f"--draft {spec.label}")
        lines.append(f"ok  {spec.label}: the same vocabulary, {_context(config)}")
    return lines


def _opened(location: str, flag: str, trust: bool, kind: str = "") -> tuple[Any, Any]:
    source = loading.resolve(location, flag, kind)
    tokenizer = loading.load_tokenizer(source, trust_remote_code=trust)
    config = loading.load_config(source, trust_remote_code=trust)
    return tokenizer, config.get_text_config(decoder=True)


def _context(config: Any) -> str:
    limit = context_limit(config)
    return "no context limit" if limit == UNLIMITED else f"context {limit:,}"
