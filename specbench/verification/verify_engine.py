"""The texts of an engine other than our own loop, with its own plain decoding as the control.

Such an engine computes its logits by kernels of its own, perhaps on weights that it rounds, so its
law is not quite the one that is computed here. What speculation changes is told from that by the
engine's plain texts (γ = 0): where these already leave the law, a fault of the others is none of
speculation, and what they say stays open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from specbench.drafts.base import Draft, by_context
from specbench.engine_table import ENGINES
from specbench.engines.torch_engine import TorchEngine
from specbench.errors import SpecbenchError
from specbench.laws.law_tests import LawTest, Measured
from specbench.measure.opening import draft_ref, pair_here
from specbench.records import Cell, Generation, Sampling
from specbench.verification.verify_greedy import GreedyCheck
from specbench.verification.verify_work import GREEDY, Work, Writing, told

PLAIN = "plain text"
PLAIN_LIMIT = 1.0
"""How far below the top a token of plain greedy text may be, in logits, before its law is called
another one: its probability is then e times smaller."""
PLAIN_GREEDY = f"every token within {PLAIN_LIMIT:g} of the top"


@dataclass(slots=True)
class EngineWork(Work):
    """The checks of one engine that is not our own loop."""

    loaded: TorchEngine | None = None
    """The target here, if the engine does not share it."""

    @property
    def engine(self) -> TorchEngine:
        """The target in our own loop; in float32, if the engine has weights of its own."""
        shared = pair_here(self.writer)
        if shared is not None:
            return shared
        if self.loaded is None:
            settings = replace(self.writer.settings, dtype="float32", forward="eager", arguments=())
            self.loaded = TorchEngine(settings)
            self.loaded.open_target()
        return self.loaded

    def close(self) -> None:
        """Free what was loaded here, and end what was started."""
        if self.loaded is not None:
            self.loaded.close()
        self.writer.close()

    def measure(self) -> list[Measured]:
        """Every test once."""
        return [*self._plain(), *self.of_drafts()]

    def _plain(self) -> Iterator[Measured]:
        """Plain decoding of the engine; its greedy texts say how far its logits are from ours."""
        spec = next(s for s in self.ready.recipe.drafts if s.label in self.ready.drafts)
        self.writer.open_draft(draft_ref(spec))
        check = GreedyCheck(self.engine.target)
        for cell in self.cells(spec.label, GREEDY, (0,)):
            # In passes as wide as those of a cycle, which say how far rounding goes.
            self.checked(check, replace(cell, gamma=max(self.gammas)), [*self.written(cell, 0)])
        if check.gaps:
            worst = max(check.gaps)
            coarse = worst > check.delta
            self.floor = 2 * worst if coarse else 0.0
            yield Measured(
                PLAIN,
                PLAIN_GREEDY,
                worst,
                len(check.gaps),
                wrong=not worst <= PLAIN_LIMIT,
                limit=PLAIN_LIMIT,
                rounded=coarse,
            )
        for law in self.wanted:
            if not law.greedy:
                drift = check.rounding.drift / law.temperature
                delta = max(check.delta, self.floor)
                yield from self.first_text(Writing(spec, law, told(law), (0,), drift, delta, PLAIN))

    def draft_of(self, writing: Writing) -> Draft | None:
        """The pair's draft, where the engine drafts by its law and tells what that depends on."""
        row = ENGINES[self.writer.name]
        if writing.group == PLAIN or row.drafts_otherwise(writing.spec.kind, writing.sampling):
            return None
        try:
            self.engine.open_draft(draft_ref(writing.spec))
        except SpecbenchError as err:
            self.say(
                f"note: {writing.spec.label} is not here, its law is not looked at: {err.what}"
            )
            return None
        draft = self.engine.draft
        return draft if row.cycles or (draft is not None and by_context(draft)) else None

    def written(self, cell: Cell, repeat: int) -> Iterator[Generation]:
        """Texts with the id that ended them, which some engines leave out."""
        for one in Work.written(self, cell, repeat):
            if not one.token_ids:
                self.miss(cell.draft, "the engine does not tell the ids of its tokens")
            elif max(one.token_ids) >= self.engine.target.vocab_size:
                self.miss(cell.draft, "the engine gives ids that the target does not have")
            elif one.cycles or one.finish_reason != "eos" or one.token_ids[-1] in self.engine.eos:
                yield one
            elif len(self.engine.eos) == 1:
                yield replace(one, token_ids=(*one.token_ids, *self.engine.eos))
            else:
                self.miss(cell.draft, "the engine does not tell which id ended a text")

    def controlled(self, tests: Sequence[LawTest]) -> tuple[list[LawTest], str]:
        """Tests with what plain decoding fails too left open, and why, in words."""
        plain = {told(w.sampling): w.sampling for w in self.writings if w.group == PLAIN}
        off = [one for one in tests if one.group == PLAIN and not one.passed]
        laws = {plain.get(one.where, GREEDY) for one in off}
        of = {w.where: w.sampling for w in self.writings if w.group != PLAIN}
        found = [
            replace(one, result="unsure")
            if one.result == "bug" and _law(one, of, plain) in laws
            else one
            for one in tests
        ]
        return found, _why(self.writer.name, off)


def _law(one: LawTest, of: dict[str, Sampling], plain: dict[str, Sampling]) -> Sampling:
    """The law that a test's texts were written by."""
    if one.group == "greedy" or one.name == PLAIN_GREEDY:
        return GREEDY
    return (plain if one.group == PLAIN else of)[one.where]


def _why(engine: str, off: Sequence[LawTest]) -> str:
    if not off:
        return ""
    names = "; ".join(f"{one.name} ({one.where})" if one.where else one.name for one in off[:2])
    return (
        f"plain decoding of {engine} leaves the law that is computed here ({names}), so what "
        "speculation adds can't be told: are the weights, the prompt form and the law the same?"
    )
