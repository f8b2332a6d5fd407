"""The scheduler: chooses each sequence's tokens for the next step, or orders drafting or a wait before it.

Continuous batching: each step is one decode over all running sequences, which generate or read a prompt.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from lead.engine.engine_limits import EngineLimits
from lead.engine.slot import Slot
from lead.engine.slot_manager import SlotManager
from lead.engine.speculation.drafts import DraftChain, survival
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.policy import Choice, DraftOrder, Verify, Wait
from lead.engine.speculation.speculation_stats import StepReport
from shared.image_span import ImageSpan
from shared.llama.batch_layout import TILE, Layout, layout
from shared.llama.span import Span

STEP_SECONDS = 0.5
"""The approximate maximum time of a step with a prompt. The smallest chunk may take longer."""
STEP_SECONDS_OF_OWN_CELLS = 2.0
"""The same limit if slots have cells of their own: prompts are read a tenth faster than with 0.5 s."""
_WEIGHT = 0.3
"""The weight of the latest step in the average."""


@dataclass(slots=True)
class PlanEntry(Span):
    """The span of a slot in a step: committed tokens that are not yet in the cache, then the `draft`.

    It has logits only if it reaches the end of the committed tokens.
    """

    slot_state: Slot = field(kw_only=True)
    draft: DraftChain = field(default=(), kw_only=True)

    @classmethod
    def of(cls, slot: Slot, n_fed: int, draft: DraftChain = (), image: ImageSpan | None = None) -> Self:
        """Return an entry with the next `n_fed` committed tokens of the slot's sequence, or the rows of
        `image`.
        """
        n_cached = len(slot.cache)
        context = slot.sequence.context if slot.sequence else []
        tokens = context[n_cached : n_cached + n_fed]
        n_logits = 1 + len(draft) if n_cached + n_fed == len(context) else 0
        tokens += [each.token for each in draft]
        is_prompt = slot.is_in_prompt
        return cls(slot.index, n_cached, tokens, n_logits, is_prompt, image, slot_state=slot, draft=draft)

    @property
    def n_fed(self) -> int:
        """The number of committed tokens in the span."""
        return len(self.tokens) - len(self.draft)


@dataclass(slots=True)
class StepPlan:
    """A step to decode: `layout` has the spans of `entries`. n_prompt: the number of prompt tokens in it."""

    entries: Sequence[PlanEntry]
    layout: Layout
    n_prompt: int = 0

    @property
    def n_tokens(self) -> int:
        """The number of tokens in the step's batch, padding included."""
        return self.layout.n_tokens

    def report(self, now: float, seconds: float, n_committed: int, *, is_usual: bool) -> StepReport:
        """Return the report of the step, which ended at `now` and committed `n_committed` tokens.

        seconds: how long it took. is_usual: no token waits for a grammar.
        """
        depths = [len(entry.draft) for entry in self.entries if entry.n_logits]
        has_expected = is_usual and not self.n_prompt
        n_expected = sum(1 + sum(survival(entry.draft)) for entry in self.entries) if has_expected else None
        n_passes = self.layout.n_ubatches
        return StepReport(self.n_tokens, seconds, depths, n_committed, n_expected, n_passes, now)


Action = StepPlan | DraftOrder | Wait
"""The next action of the engine."""


class PromptChunk:
    """The number of prompt tokens in a step while other sequences are generating.

    Few tokens keep the generating sequences from stalling. But each step with a prompt takes longer, and if
    slots have cells of their own, the prompt is an additional pass over the weights. Therefore the number is
    larger where steps are quick: from `n_min` to `n_max` tokens, learned from the times of steps with
    prompts.
    """

    def __init__(self, n_min: int, n_max: int, step_seconds: float = STEP_SECONDS) -> None:
        self._n_min, self._n_max = min(n_min, n_max), n_max
        self._step_seconds = step_seconds
        self.seconds: float | None = None
        """Seconds per prompt token; None: unknown."""

    @property
    def n_tokens(self) -> int:
        """The number of prompt tokens that the next step may take."""
        if self.seconds is None:
            return self._n_min
        n = int(self._step_seconds / self.seconds) // TILE * TILE
        return min(self._n_max, max(self._n_min, n))

    def learn(self, n_tokens: int, seconds: float) -> None:
        """Record that a step with `n_tokens` prompt tokens took `seconds`; steps below `n_min` tokens are
        ignored.
        """
        if n_tokens < self._n_min or seconds <= 0:
            return
        each = seconds / n_tokens
        self.seconds = each if self.seconds is None else (1 - _WEIGHT) * self.seconds + _WEIGHT * each


class Scheduler:
    """Plans steps over the sequences in `slots`; `now` is in seconds of a monotonic clock."""

    def __init__(self, limits: EngineLimits, slots: SlotManager, speculation: SpeculationManager) -> None:
        self._limits = limits
        self._slots = slots
        self._speculation = speculation
        step_seconds = STEP_SECONDS_OF_OWN_CELLS if limits.own_cells else STEP_SECONDS
        self._prompt_chunk = PromptChunk(limits.n_prompt_chunk, limits.n_batch, step_seconds)
        self.is_minimal = False
        """True if the cache was full: the next step then has as few tokens as possible."""

    def plan(self, now: float) -> Action:
        """Return the next step, or an order to draft or wait before it."""
        running = [slot for slot in self._slots.running() if not slot.is_waiting and not slot.cache.loading]
        if not running:
            return Wait(0.0)
        generating = self._generating_slots(running)
        prompts = [slot for slot in running if slot not in generating]
        n_prompt = self._n_prompt(generating, prompts)
        choice = self._choose(generating, n_prompt, now)
        if isinstance(choice, Wait) and self._slots.texts.has_moved:
            return Wait(0.0)  # the next part of a text moves then
        if not isinstance(choice, Verify):
            return choice
        entries, planned = self._lay_out(self._entries(generating, choice.drafts, prompts, n_prompt))
        planned = planned if n_prompt or self.is_minimal else self._widened(entries, planned)
        self._slots.store_idle()
        return StepPlan(entries, planned, sum([entry.n_fed for entry in entries[len(generating) :]]))

    def _widened(self, entries: Sequence[PlanEntry], planned: Layout) -> Layout:
        """Return `planned` padded to the width that speculation expects, if there is room.

        Padding has outputs, because llama.cpp builds another graph if the number of outputs changes.
        """
        n_draft = sum(len(entry.draft) for entry in entries)
        n_padding = self._speculation.width(planned.n_tokens, n_draft) - planned.n_tokens
        if n_padding <= 0:
            return planned
        *parts, last = planned.passes[-1]
        n_outputs = last.size + n_padding
        n_tokens = planned.n_tokens + n_padding
        has_room = n_tokens <= min(self._limits.n_batch, self._slots.n_free)
        if not has_room or last.span.start + n_outputs > self._limits.n_ctx_sequence:
            return planned
        return replace(planned, passes=[[*parts, last._replace(n_padding=n_padding, n_outputs=n_outputs)]])

    def learn(self, plan: StepPlan, seconds: float) -> None:
        self.is_minimal = False
        if plan.n_prompt:
            self._prompt_chunk.learn(plan.n_prompt, seconds)
            self._slots.price.token_seconds = self._prompt_chunk.seconds

    def _generating_slots(self, running: list[Slot]) -> list[Slot]:
        """Return the slots whose next token is due, as long as the tokens that they replay fit into
        the step.
        """
        n_spare = 0 if self.is_minimal else self._limits.n_batch - len(running)
        slots = []
        for slot in running:
            if slot.is_generating and (n_replayed := slot.n_to_decode - 1) <= n_spare:
                slots.append(slot)
                n_spare -= n_replayed
        return slots

    def _n_prompt(self, generating: list[Slot], prompts: list[Slot]) -> int:
        """Return the maximum number of prompt tokens for the batch."""
        if not prompts:
            return 0
        if image := prompts[0].image:
            return image.n_rows
        max_tokens = self._prompt_chunk.n_tokens if generating else self._limits.n_batch
        if self.is_minimal:
            max_tokens = 1
        return min(sum(slot.n_to_decode for slot in prompts), max_tokens)

    def _lay_out(self, entries: list[PlanEntry]) -> tuple[list[PlanEntry], Layout]:
        """Lay out the step; without drafts if one cannot be rolled back or there is no room for padding."""
        planned = layout(entries, self._limits)
        if not self._limits.rolls_states_back or self._is_safe(entries, planned):
            return entries, planned
        entries = [PlanEntry.of(entry.slot_state, entry.n_fed, image=entry.image) for entry in entries]
        return entries, layout(entries, self._limits)

    def _is_safe(self, entries: list[PlanEntry], planned: Layout) -> bool:
        if any(entry.draft and entry.slot not in planned.can_roll_back for entry in entries):
            return False
        n_cells = planned.n_tokens
        return self._limits.own_cells or self._slots.free_up_to(n_cells) >= n_cells

    def _choose(self, generating: list[Slot], n_prompt: int, now: float) -> Choice:
        if not self._limits.traits.can_speculate or self.is_minimal:
            return Verify([()] * len(generating))
        return self._speculation.plan(generating, n_prompt, now)

    def _entries(
        self, generating: list[Slot], drafts: Sequence[DraftChain], prompts: list[Slot], n_prompt: int
    ) -> list[PlanEntry]:
        # Generating slots get all tokens that they require; the rest goes to drafts, then to prompts.
        n_to_decode = [slot.n_to_decode for slot in generating]
        n_required = sum(n_to_decode)
        n_wanted = n_required + n_prompt
        if not self.is_minimal:
            n_wanted += sum(map(len, drafts))
        n_free = self._slots.free_up_to(n_wanted)
        image = prompts[0].image if prompts else None
        if image:  # it has passes of its own
            n_free, n_wanted = n_free - image.n_rows, n_wanted - image.n_rows
        n_spare = min(self._limits.n_batch, n_free, n_wanted) - n_required
        n_kept = min(n_spare, 1) if prompts and not image else 0
        entries = []
        for slot, n_fed, draft in zip(generating, n_to_decode, drafts, strict=True):
            verified = draft[: n_spare - n_kept]
            n_spare -= len(verified)
            entries.append(PlanEntry.of(slot, n_fed, verified))
        if image:
            return [*entries, PlanEntry.of(prompts[0], image.n_rows, image=image)]
        return entries + self._prompt_entries(prompts, min(n_spare, n_prompt)) if prompts else entries

    def _prompt_entries(self, prompts: list[Slot], n_spare: int) -> list[PlanEntry]:
        """Return entries for `prompts`, one prompt after the other, with at most `n_spare` tokens in all.

        The tokens are not divided among prompts, because attention for a few tokens costs as much as for a
        tile of 64. Images, and prompts after an image, wait for a later step.
        """
        entries = []
        for slot in itertools.takewhile(lambda slot: not slot.image, prompts):
            n_fed = min(slot.n_to_next_checkpoint, n_spare)
            if n_fed:
                entries.append(PlanEntry.of(slot, n_fed))
            n_spare -= n_fed
        return entries
