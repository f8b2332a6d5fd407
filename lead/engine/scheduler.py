"""The scheduler: which tokens of which sequences go into the next step.

Continuous batching: every step is one decode over all running sequences, prompt chunks beside generation.
"""

from collections.abc import Sequence
from dataclasses import replace

from lead.engine.engine_limits import EngineLimits
from lead.engine.prompt_chunk import STEP_SECONDS, STEP_SECONDS_OF_OWN_CELLS, PromptChunk
from lead.engine.sequence import EngineSequence
from lead.engine.slot import MAX_REPLAY, Slot
from lead.engine.slot_manager import SlotManager
from lead.engine.speculation.draft_chain import EMPTY_CHAIN, DraftChain
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.speculation_plan import GeneratingSequence, SpeculationPlan
from lead.engine.step_plan import Action, PlanEntry, StepPlan, Wait
from shared.llama.span import (
    Span,
    n_passes,
    padding,
    prompts_first,
    slots_in_last_pass,
    wants_two_passes,
)
from shared.llama.width_policy import passes


class Scheduler:
    """Plans steps over the sequences that `slots` holds; `now` is seconds of a monotonic clock."""

    def __init__(self, limits: EngineLimits, slots: SlotManager, speculation: SpeculationManager) -> None:
        self._limits = limits
        self._slots = slots
        self._speculation = speculation
        step_seconds = STEP_SECONDS if limits.n_ctx_slot is None else STEP_SECONDS_OF_OWN_CELLS
        self._prompt_chunk = PromptChunk(limits.n_prompt_chunk, limits.n_batch, step_seconds)
        self.is_minimal = False
        """The cache was full: the next step takes as few tokens as it can."""

    def plan(self, now: float) -> Action:
        """The next step, unless drafting or waiting comes first."""
        running = [slot for slot in self._slots.running() if not slot.is_waiting and not slot.cache.loading]
        if not running:
            return Wait(0.0)
        generating = self._generating_slots(running)
        prompts = [slot for slot in running if slot not in generating]
        drafts = self._plan_drafts(generating, self._n_prompt(generating, prompts), now)
        if drafts.order:
            return drafts.order
        if drafts.wait > 0:
            return Wait(0.0 if self._slots.has_moved else drafts.wait)  # the next part of a text moves then
        entries = self._without_unsafe_drafts(self._entries(generating, drafts.chains, prompts))
        self._slots.store_idle()
        spans = [entry.span for entry in entries]
        n_padding, n_of_passes = self._n_padding(spans)
        return StepPlan(
            entries,
            spans,
            n_prompt=sum(entry.n_fed for entry in entries[len(generating) :]),
            n_expected=None if prompts else drafts.n_expected,
            n_padding=n_padding,
            n_passes=n_of_passes,
        )

    def learn(self, plan: StepPlan, seconds: float) -> None:
        """A plan was decoded, which took `seconds`."""
        self.is_minimal = False
        self._prompt_chunk.learn(plan.n_prompt, seconds)

    def _generating_slots(self, running: list[Slot]) -> list[Slot]:
        """Those whose next token is due, as far as all that they replay fits into the step."""
        n_spare = 0 if self.is_minimal else self._limits.n_batch - len(running)
        slots = []
        for slot in running:
            if slot.is_generating and slot.n_to_decode - 1 <= n_spare:
                slots.append(slot)
                n_spare -= slot.n_to_decode - 1
        return slots

    def _n_prompt(self, generating: list[Slot], prompts: list[Slot]) -> int:
        """How many tokens of prompts are to be in the batch, at most."""
        if not prompts:
            return 0
        max_tokens = self._prompt_chunk.n_tokens if generating else self._limits.n_batch
        if self.is_minimal:
            max_tokens = 1
        return min(sum(slot.n_to_decode for slot in prompts), max_tokens)

    def _without_unsafe_drafts(self, entries: list[PlanEntry]) -> list[PlanEntry]:
        """Without drafts, if one could not be rolled back or there is no room for their padding."""
        if not self._limits.rolls_states_back:
            return entries
        spans = [entry.span for entry in entries]
        n_padding, _ = self._n_padding(spans)
        n_cells = sum(len(span.tokens) for span in spans) + n_padding
        last = self.slots_in_last_pass(spans)
        is_safe = all(entry.slot.index in last for entry in entries if entry.draft.tokens)
        if is_safe and (self._limits.n_ctx_slot or self._slots.free_up_to(n_cells) >= n_cells):
            return entries
        return [replace(entry, draft=EMPTY_CHAIN) for entry in entries]

    def slots_in_last_pass(self, spans: Sequence[Span]) -> frozenset[int]:
        """Those of which a draft can be rolled back when `spans` were decoded."""
        limits = self._limits
        if not limits.rolls_states_back:
            return frozenset(span.slot for span in spans)
        in_order = limits.n_ctx_slot is not None
        return slots_in_last_pass(spans, limits.n_batch, limits.n_ctx_each, in_order=in_order)

    def _n_padding(self, spans: Sequence[Span]) -> tuple[int, int]:
        """How many tokens the model adds to `spans`, and in how many passes it decodes them."""
        limits = self._limits
        if limits.widths:
            parts = passes(spans, limits.widths)
            return sum(part.n_padding for together in parts for part in together), len(parts)
        if limits.tiles_attention and wants_two_passes(spans):
            return 0, 2
        if not limits.pads_unequal_lengths:
            return 0, n_passes(spans, [0] * len(spans), equal_lengths=limits.traits.equal_lengths)
        n_added = n = 0
        for together in [spans] if limits.traits.can_trim else prompts_first(spans):
            n_padding = padding(together, limits.n_batch, limits.n_ctx_each)
            n_added += sum(n_padding)
            n += n_passes(together, n_padding, equal_lengths=limits.traits.equal_lengths)
        return n_added, n

    def _plan_drafts(self, generating: list[Slot], n_prompt: int, now: float) -> SpeculationPlan:
        if not self._limits.traits.can_speculate or self.is_minimal:
            return SpeculationPlan([EMPTY_CHAIN] * len(generating), 0.0, len(generating))
        sequences = [self._generating(slot, slot.sequence) for slot in generating if slot.sequence]
        return self._speculation.plan(sequences, n_prompt, now)

    def _generating(self, slot: Slot, sequence: EngineSequence) -> GeneratingSequence:
        n_useful, n_rollback = sequence.n_useful(self._limits.n_ctx_sequence), self._limits.traits.n_rollback
        if slot.n_to_decode > MAX_REPLAY:
            n_useful = 0
        elif n_rollback:
            n_useful = min(n_useful, n_rollback)
        if widths := self._limits.widths:
            is_last_of_prompt = slot.is_in_prompt and not widths.is_uniform  # which is decoded otherwise
            n_useful = 0 if is_last_of_prompt else min(n_useful, widths.max_draft)
        n_left = sequence.n_left(self._limits.n_ctx_sequence)
        return GeneratingSequence(sequence.id, n_useful, slot.n_to_decode, n_left, slot.index)

    def _entries(
        self, generating: list[Slot], chains: list[DraftChain], prompts: list[Slot]
    ) -> list[PlanEntry]:
        # What generating slots require has its place in the batch; the rest goes to drafts, then to prompts.
        n_required = sum(slot.n_to_decode for slot in generating)
        n_wanted = n_required + self._n_prompt(generating, prompts)
        if not self.is_minimal:
            n_wanted += sum(len(chain.tokens) for chain in chains)
        n_spare = min(self._limits.n_batch, self._slots.free_up_to(n_wanted), n_wanted) - n_required
        n_kept = min(n_spare, 1) if prompts else 0
        entries = []
        for slot, chain in zip(generating, chains, strict=True):
            draft = chain.cut(n_spare - n_kept)
            n_spare -= len(draft.tokens)
            entries.append(PlanEntry(slot, slot.n_to_decode, draft))
        return entries + self._prompt_entries(prompts, min(n_spare, self._n_prompt(generating, prompts)))

    def _prompt_entries(self, prompts: list[Slot], n_spare: int) -> list[PlanEntry]:
        """One prompt after the other: a few tokens of another cost as much attention as a tile of 64."""
        entries = []
        for slot in prompts:
            n_fed = min(slot.n_to_next_checkpoint, n_spare)
            if n_fed:
                entries.append(PlanEntry(slot, n_fed))
            n_spare -= n_fed
        return entries
