"""A draft as someone else would write it: the lines of CONTRIBUTING.md."""

from torch import Tensor

from specbench.drafts.hf import HfDraft
from specbench.models.sampling import first_max, one_hot
from specbench.records import Sampling


class Greedy(HfDraft):
    """Proposes the model's most likely token, whatever the temperature."""

    def _choose(self, logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor | None]:
        return first_max(logits[:, : self._target_vocab])[1], None

    def _law_of(self, logits: Tensor, sampling: Sampling) -> Tensor:
        return one_hot(logits)
