"""What the scheduler plans: a step, or what comes before it."""

from collections.abc import Sequence
from dataclasses import dataclass

from lead.engine.slot import Slot
from lead.engine.speculation.drafts import EMPTY_CHAIN, DraftChain
from lead.engine.speculation.policy import DraftOrder, Wait
from shared.cache_edits import CacheEdit
from shared.llama.batch_layout import Layout
from shared.llama.span import Span


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """A slot's part of a step: `n_fed` committed tokens not yet in the cache, then the draft.

    There are logits only where the committed tokens are fed to their end.
    """

    slot: Slot
    n_fed: int
    draft: DraftChain = EMPTY_CHAIN

    @property
    def span(self) -> Span:
        slot, n_cached = self.slot, len(self.slot.cache)
        tokens = slot.sequence.context if slot.sequence else []
        fed = tokens[n_cached : n_cached + self.n_fed]
        reaches_end = n_cached + self.n_fed == len(tokens)
        draft = self.draft.tokens
        n_logits = 1 + len(draft) if reaches_end else 0
        return Span(slot.index, n_cached, [*fed, *draft], n_logits, is_prompt=slot.is_in_prompt)


@dataclass(frozen=True, slots=True)
class TrialPlace:
    """Where an idle engine can decode some tokens and remove them again: after `n_cached` tokens of a slot.

    Apply `edits` to the cache first.
    """

    slot: int = 0
    n_cached: int = 0
    edits: Sequence[CacheEdit] = ()


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Decode `layout`, a span per entry. n_prompt: tokens of prompts among them."""

    entries: list[PlanEntry]
    layout: Layout
    n_prompt: int = 0

    @property
    def n_expected(self) -> float | None:
        """How many tokens the step should commit; None with prompts in the batch."""
        return None if self.n_prompt else sum(1 + sum(entry.draft.probabilities) for entry in self.entries)

    @property
    def n_tokens(self) -> int:
        """In its batch, padding included."""
        return self.layout.n_tokens


Action = StepPlan | DraftOrder | Wait
"""What an engine is to do next."""
