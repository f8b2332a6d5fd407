"""An inline drafter with heads of the target: its own MTP heads, or an EAGLE-3 drafter.

For committed tokens, a head reads the target's hidden states, which are kept in host memory
(`shared.heads.hidden_states`) until the head is asked to draft. For drafted tokens, the head reads its own
states, and reads the tokens again with the target's states once these are known. If the hidden states of a
text's beginning are no longer kept, the head's cache begins later. This cannot change the text, because the
target verifies.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lead.engine.drafters.draft_source import Continuation, InlineDraft
from shared.drafting.interfaces import MakeSampler
from shared.errors import KvCacheFullError, PendingAnswerError
from shared.heads.hidden_states import HiddenStates
from shared.heads.mtp_span import MtpOutput, MtpSpan
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler
from shared.slot_cache import common_prefix_length

log = logging.getLogger("engine")

_GRAMMAR_SECONDS = 0.002
"""The time for answers about grammars in one round; later answers are awaited while other sequences continue.
"""


class Heads(Protocol):
    """The interface to the native heads (`shared.heads.mtp_heads.MtpHeads`)."""

    source: str
    n_batch: int
    reads_first: bool

    def decode(self, spans: Sequence[MtpSpan]) -> list[MtpOutput]:
        """Decode all spans in one pass. Raises KvCacheFullError."""

    def trim(self, slot: int, first: int) -> None:
        """Remove the tokens from position `first` on."""


@dataclass(slots=True)
class _MtpCache:
    """The consecutive tokens that the head has read in one slot, from position `first` on.

    n_own: how many of the last tokens were read with the head's own states. is_idle: its sequence has left.
    """

    is_idle: bool = False
    first: int = 0
    tokens: list[int] = field(default_factory=list)
    n_own: int = 0

    @property
    def end(self) -> int:
        return self.first + len(self.tokens)


@dataclass(slots=True, eq=False)
class MtpDraft(InlineDraft):
    """The draft of a sequence; it follows the first `base` tokens of its context.

    The `context` is the part of the committed `tokens` that the target sees (see `place`). States and caches
    have positions in the context, noise has positions in the text. own_states[i] is the head's state after
    the token before drafted[i]; the head reads drafted[i] with this state.
    """

    drafter: "MtpDrafter"
    sampling: SamplingParameters
    tokens: Sequence[int]
    context: Sequence[int] = ()
    slot: int | None = None
    base: int = 0
    drafted: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    own_states: list[NDArray[np.float32]] = field(default_factory=list)
    sampler: Sampler | None = None
    unranked: NDArray[np.float32] | None = None
    failed: bool = False

    @property
    def n_pending(self) -> int | None:
        return self.drafter.n_pending(self)

    @property
    def continuation(self) -> Continuation:
        return list(self.drafted), list(self.confidences)

    def place(self, slot: int, context: Sequence[int]) -> None:
        """Assign the draft to `slot`; drop the drafted tokens if the slot or the context has changed."""
        if self.slot != slot or self.context is not context:
            self.slot, self.context = slot, context
            self.base = 0
            self.drafted, self.confidences, self.own_states = [], [], []

    def leave(self) -> None:
        if self.slot is not None:
            self.drafter.leave(self.slot)
        self.slot = None

    @property
    def end(self) -> int:
        """The position after the draft."""
        return self.base + len(self.drafted)

    def sync(self) -> bool:
        """Update to the current context, keeping the part of the draft that agrees; returns whether there was
        anything new.
        """
        new = list(self.context[self.base :])
        if not new:
            return False
        n_kept = len(self.drafted) - len(new) if self.drafted[: len(new)] == new else 0
        first = len(self.drafted) - max(0, n_kept)
        del self.drafted[:first], self.confidences[:first], self.own_states[:first]
        del self.own_states[len(self.drafted) :]  # of a token that is yet to be chosen
        self.unranked = None
        if self.sampler and not self.drafted:
            self.sampler.rewind(self.tokens)
        self.base = len(self.context)
        return True

    def text(self, start: int, end: int) -> list[int]:
        """Return tokens start … end - 1 of the context, followed by the draft."""
        return [*self.context[start : self.base], *self.drafted[max(0, start - self.base) :]][: end - start]


class MtpDrafter:
    """An `InlineDrafter` with MTP or EAGLE-3 heads."""

    def __init__(
        self,
        heads: Heads,
        states: HiddenStates,
        make_sampler: MakeSampler,
        end_tokens: frozenset[int],
        *,
        n_max: int,
        budget: GrammarBudget | None = None,
    ) -> None:
        """`states` is filled by the target's model. `n_max`: the longest draft."""
        self.source = heads.source
        self.n_max = n_max
        self._heads = heads
        self._states = states
        self._make_sampler = make_sampler
        self._end_tokens = end_tokens
        self._budget = budget or GrammarBudget()
        self._caches: dict[int, _MtpCache] = {}

    def open(
        self,
        _sequence: str,
        sampling: SamplingParameters,
        tokens: Sequence[int],
    ) -> MtpDraft:
        return MtpDraft(self, sampling, tokens)

    def leave(self, slot: int) -> None:
        """Free the slot of a sequence; its tokens stay cached for the next sequence."""
        if slot in self._caches:
            self._caches[slot].is_idle = True

    def on_round(self, _n_tokens: int, _seconds: float) -> bool:
        return True

    def n_pending(self, draft: MtpDraft) -> int | None:
        """Return the number of tokens to read before the draft's next token can be chosen; None: the draft
        cannot grow.
        """
        if draft.slot is None or draft.failed:
            return None
        self._sync(draft, draft.slot)
        has_ended = bool(draft.drafted) and draft.drafted[-1] in self._end_tokens
        if has_ended or len(draft.drafted) >= self.n_max:
            return None
        if draft.unranked is not None:
            return 1
        start = self._start(draft, draft.slot)
        return None if start is None else draft.end - start

    def draft(self, drafts: Sequence[MtpDraft], n_max: int) -> tuple[int, Sequence[MtpDraft]]:
        work = [each for each in drafts if self.n_pending(each)]
        n_spare = min(n_max, self._heads.n_batch) - len(work)
        spans: list[MtpSpan] = []
        for draft in work:
            if draft.unranked is None:
                spans.append(self._span(draft, n_spare))
                n_spare -= len(spans[-1].tokens) - 1
        outputs: dict[int, MtpOutput] = {}  # by slot
        if spans:
            try:
                outputs = self._decode(spans)
            except KvCacheFullError:
                self._forget_idle()
                return 0, []
        self._budget.set(_GRAMMAR_SECONDS)
        grown = [each for each in work if each.slot is not None and self._grow(each, outputs.get(each.slot))]
        return sum(len(span.tokens) for span in spans), grown

    # The cache of the head

    def _sync(self, draft: MtpDraft, slot: int) -> None:
        """Update the records of a sequence and of its slot to the committed tokens."""
        is_new = draft.base == 0
        if not draft.sync():
            return
        cache = self._caches.setdefault(slot, _MtpCache())
        cache.is_idle = False
        n_exact = len(cache.tokens) - cache.n_own
        if is_new:  # the slot may hold another text
            n_exact = min(n_exact, common_prefix_length(cache.tokens, list(draft.context[cache.first :])))
        self._cut(slot, cache, n_exact)

    def _cut(self, slot: int, cache: _MtpCache, n_keep: int) -> None:
        cache.n_own = 0
        if n_keep < len(cache.tokens):
            del cache.tokens[n_keep:]
            self._heads.trim(slot, cache.end if n_keep else 0)

    def _start(self, draft: MtpDraft, slot: int) -> int | None:
        """Return the position of the first token that the head has not read; None if it cannot read on."""
        first_state = self._states.first(slot, draft.context)  # the target's states are kept from here on
        if first_state >= len(draft.context) - 1:
            return None
        # A token is read with the state before it; for the very first one some heads need none.
        first_readable = 0 if first_state == 0 and self._heads.reads_first else first_state + 1
        cache = self._caches[slot]
        return cache.end if cache.tokens and cache.end > first_state else first_readable

    def _span(self, draft: MtpDraft, n_spare: int) -> MtpSpan:
        assert draft.slot is not None
        slot, cache = draft.slot, self._caches[draft.slot]
        start = self._start(draft, slot)
        assert start is not None
        if start != cache.end or not cache.tokens:
            self._cut(slot, cache, 0)
            cache.first = start
        tokens = draft.text(start, start + 1 + max(0, n_spare))
        states = [self._state(draft, slot, position) for position in range(start, start + len(tokens))]
        return MtpSpan(slot, start, tokens, states)

    def _state(self, draft: MtpDraft, slot: int, position: int) -> NDArray[np.float32]:
        """Return the hidden state after the token before `position`."""
        if position >= draft.base:
            return draft.own_states[position - draft.base]
        return self._states.state(slot, position - 1) if position else self._states.nothing

    def _decode(self, spans: Sequence[MtpSpan]) -> dict[int, MtpOutput]:
        outputs = self._heads.decode(spans)
        for span in spans:
            self._caches[span.slot].tokens += span.tokens
        return {span.slot: output for span, output in zip(spans, outputs, strict=True)}

    def _forget_idle(self) -> None:
        """Empty the slots without a sequence, or, if there are none, all slots, because the cache is full."""
        idle = [slot for slot, cache in self._caches.items() if cache.is_idle and cache.tokens]
        for slot in idle or list(self._caches):
            self._cut(slot, self._caches[slot], 0)

    # The draft

    def _grow(self, draft: MtpDraft, output: MtpOutput | None) -> bool:
        """Add a token to a draft, if the head has read all before it."""
        assert draft.slot is not None
        cache = self._caches[draft.slot]
        if output is not None:
            cache.n_own = max(0, cache.end - draft.base)
            if cache.end < draft.end:
                return False
            draft.own_states.append(output.state.copy())
        logits = draft.unranked if output is None else output.logits
        assert logits is not None
        try:
            self._choose(draft, logits)
        except PendingAnswerError:
            draft.unranked = logits.copy() if output else logits
            return False
        except Exception:
            log.exception("no longer drafting for a sequence of %d tokens", len(draft.tokens))
            draft.failed = True
            return False
        return True

    def _choose(self, draft: MtpDraft, logits: NDArray[np.float32]) -> None:
        if draft.sampler is None:
            draft.sampler = self._make_sampler(draft.sampling, list(draft.tokens))
        (choice,) = draft.sampler.rank(logits, len(draft.tokens) + len(draft.drafted), 1)
        draft.unranked = None
        draft.drafted.append(choice.token)
        draft.confidences.append(choice.confidence)
        draft.sampler.accept(choice.token)
