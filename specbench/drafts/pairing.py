"""Is this draft's vocabulary the target's? Decided from tokenizers, before weights are read."""

from __future__ import annotations

from typing import Any

from specbench.errors import PairRefused


def check_vocabularies(target: Any, draft: Any, target_label: str, draft_label: str) -> None:
    """Refuse another vocabulary, naming both models, both sizes and the first differing token.

    Tables padded to different sizes are one valid pair: only the tokenizers' entries count.
    """
    ours, theirs = _by_id(target), _by_id(draft)
    if ours == theirs:
        return
    first = min(i for i in ours.keys() | theirs.keys() if ours.get(i) != theirs.get(i))
    raise PairRefused(
        "target and draft have different vocabularies",
        where=f"{target_label} has {len(ours):,} tokens, {draft_label} has {len(theirs):,};\n"
        f"first difference: id {first}, {_show(ours.get(first))} and {_show(theirs.get(first))}",
        hint="a draft of the target's family",
    )


def _by_id(tokenizer: Any) -> dict[int, str]:
    return {index: token for token, index in tokenizer.get_vocab().items()}


def _show(token: str | None) -> str:
    return "none" if token is None else f'"{token}"'
