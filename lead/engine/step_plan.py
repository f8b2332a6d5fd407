"""A step as the scheduler plans it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lead.engine.events import SequenceEvent
from lead.engine.slot import Slot
from lead.engine.speculation.drafts import EMPTY_CHAIN, DraftChain
from lead.engine.speculation.inline_drafting import DraftOrder
from shared.cache_edits import CacheEdit
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
        """What is decoded."""
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
    """Apply `edits` to the cache, in any case and before the next plan; then decode `spans` (one per entry).

    `events` are those of planning. `n_prompt`: tokens of prompts among those decoded. `n_expected`: how many
    tokens it should commit; None with prompts in the batch. With `wait` > 0 there is nothing to decode yet:
    plan again when a command has arrived, or after `wait` seconds; with an `order`, when that has been
    drafted; with neither, at once. `n_padding`: tokens that the model adds, `n_passes`: over the weights
    (both: `shared.llama.span`).
    """

    events: list[SequenceEvent]
    edits: list[CacheEdit] = field(default_factory=list)
    entries: list[PlanEntry] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    wait: float = 0.0
    order: DraftOrder | None = None
    n_prompt: int = 0
    n_expected: float | None = None
    n_padding: int = 0
    n_passes: int = 1

    @property
    def n_tokens(self) -> int:
        """In its batch."""
        return sum(len(span.tokens) for span in self.spans) + self.n_padding
