"""The target's own heads for further tokens (MTP) as an inline drafter.

Whatever a head reads about committed tokens comes from the target: its hidden states are kept in host memory
(`shared.llama.hidden_states`) until the head is asked to draft. What it drafts it reads from its own states,
and reads again from the target's once they are known. Where the hidden states of a text's beginning are not
kept any more, its cache begins later; any window is correct, because the target verifies.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lead.engine.commands import MTP
from lead.engine.context_shift import ContextShift
from lead.engine.drafters.inline_drafter import InlineRound
from shared.drafting.interfaces import MakeSampler
from shared.errors import KvCacheFullError, PendingAnswerError
from shared.llama.hidden_states import HeadOutput, HeadSpan, HiddenStates
from shared.sampling.constrained import GrammarBudget, NoWait
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler
from shared.slot_cache import common_prefix_length

log = logging.getLogger("engine")

_GRAMMAR_SECONDS = 0.002
"""For answers about grammars in one round; longer ones are awaited while other sequences go on."""


class Heads(Protocol):
    """The seam to the native heads (`shared.llama.mtp_heads.MtpHeads`)."""

    n_batch: int
    reads_first: bool

    def decode(self, spans: Sequence[HeadSpan]) -> list[HeadOutput]:
        """One pass over all spans. Raises KvCacheFullError."""

    def trim(self, slot: int, first: int) -> None:
        """Remove the tokens from position `first` on."""


@dataclass(slots=True)
class _HeadCache:
    """What the head has read in one slot: tokens at positions first, first + 1, …

    `n_own`: the last of them, which were read with the head's own states.
    """

    first: int = 0
    tokens: list[int] = field(default_factory=list)
    n_own: int = 0

    @property
    def end(self) -> int:
        return self.first + len(self.tokens)


@dataclass(slots=True)
class _HeadSequence:
    """A sequence; its draft follows the first `base` tokens of its context.

    The context is what the target sees of `tokens`, all committed ones: all of them, until a `shift` has
    discarded `n_discarded`. Rows and caches have positions in the context, noise has those in the text.
    own_rows[i] is the head's state behind the token before drafted[i], the first one's is the target's.
    """

    sampling: SamplingParameters
    tokens: Sequence[int]
    shift: ContextShift | None = None
    n_discarded: int = 0
    slot: int | None = None
    base: int = 0
    drafted: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    own_rows: list[NDArray[np.float32]] = field(default_factory=list)
    sampler: Sampler | None = None
    unranked: NDArray[np.float32] | None = None
    failed: bool = False
    _shifted: list[int] = field(default_factory=list)

    @property
    def context(self) -> Sequence[int]:
        return self._shifted if self.n_discarded else self.tokens

    @property
    def end(self) -> int:
        """Of the draft."""
        return self.base + len(self.drafted)

    def begin_anew(self) -> None:
        """The target's states of its context are others now."""
        self.base = 0
        self.drafted, self.confidences, self.own_rows = [], [], []

    def follow_shifts(self) -> None:
        """Bring the context up to what was committed."""
        n_discarded = self.shift.n_discarded(len(self.tokens)) if self.shift else 0
        if self.shift and n_discarded != self.n_discarded:
            self.n_discarded, self._shifted = n_discarded, self.shift.context(self.tokens)
            self.begin_anew()
        elif n_discarded:
            self._shifted += self.tokens[n_discarded + len(self._shifted) :]

    def sync(self) -> bool:
        """Take in the context: the part of the draft that agrees stays. Whether there was anything."""
        new = list(self.context[self.base :])
        if not new:
            return False
        n_kept = len(self.drafted) - len(new) if self.drafted[: len(new)] == new else 0
        first = len(self.drafted) - max(0, n_kept)
        del self.drafted[:first], self.confidences[:first], self.own_rows[:first]
        del self.own_rows[len(self.drafted) :]  # of a token that is yet to be chosen
        self.unranked = None
        if self.sampler and not self.drafted:
            self.sampler.rewind(self.tokens)
        self.base = len(self.context)
        return True

    def text(self, start: int, end: int) -> list[int]:
        """Of the context: tokens start … end - 1, with those of the draft."""
        return [*self.context[start : self.base], *self.drafted[max(0, start - self.base) :]][: end - start]


class MtpDrafter:
    """An `InlineDrafter`. `place` says in which slot of the target a sequence is."""

    def __init__(
        self,
        heads: Heads,
        rows: HiddenStates,
        make_sampler: MakeSampler,
        end_tokens: frozenset[int],
        *,
        n_most: int,
        budget: GrammarBudget | None = None,
        source: str = MTP,
    ) -> None:
        """`rows` is filled by the target's model. `n_most`: the longest draft."""
        self.source = source
        self.n_most = n_most
        self._heads = heads
        self._rows = rows
        self._make_sampler = make_sampler
        self._end_tokens = end_tokens
        self._budget = budget or NoWait()
        self._followed: dict[str, _HeadSequence] = {}
        self._caches: dict[int, _HeadCache] = {}

    def open(
        self,
        sequence: str,
        sampling: SamplingParameters,
        tokens: Sequence[int],
        shift: ContextShift | None = None,
    ) -> None:
        self._followed[sequence] = _HeadSequence(sampling, tokens, shift)

    def close(self, sequence: str) -> None:
        self._followed.pop(sequence, None)

    def place(self, sequence: str, slot: int) -> None:
        followed = self._followed[sequence]
        if followed.slot != slot:
            followed.slot = slot
            followed.begin_anew()

    def on_round(self, _n_tokens: int, _seconds: float) -> bool:
        return True

    def n_pending(self, sequence: str) -> int | None:
        followed = self._followed.get(sequence)
        if followed is None or followed.slot is None or followed.failed:
            return None
        self._sync(followed, followed.slot)
        has_ended = bool(followed.drafted) and followed.drafted[-1] in self._end_tokens
        if has_ended or len(followed.drafted) >= self.n_most:
            return None
        if followed.unranked is not None:
            return 1
        start = self._start(followed, followed.slot)
        return None if start is None else followed.end - start

    def draft(self, sequences: Sequence[str], n_most: int) -> InlineRound:
        work = [(each, self._followed[each]) for each in sequences if self.n_pending(each)]
        n_spare = min(n_most, self._heads.n_batch) - len(work)
        spans: list[HeadSpan] = []
        outputs: dict[str, HeadOutput | None] = {}
        for sequence, followed in work:
            if followed.unranked is None:
                span = self._span(followed, n_spare)
                n_spare -= len(span.tokens) - 1
                spans.append(span)
                outputs[sequence] = None
        if spans:
            try:
                outputs = dict(zip(outputs, self._decode(spans), strict=True))
            except KvCacheFullError:
                self._forget_idle()
                return InlineRound(0, {})
        self._budget.set(_GRAMMAR_SECONDS)
        grown = [
            sequence for sequence, followed in work if self._grow(sequence, followed, outputs.get(sequence))
        ]
        drafts = {
            each: (list(self._followed[each].drafted), list(self._followed[each].confidences))
            for each in grown
        }
        return InlineRound(sum(len(span.tokens) for span in spans), drafts)

    # The cache of the head

    def _sync(self, followed: _HeadSequence, slot: int) -> None:
        """Bring a sequence's records, and those of its slot, up to what was committed."""
        followed.follow_shifts()
        is_new = followed.base == 0
        if not followed.sync():
            return
        cache = self._caches.setdefault(slot, _HeadCache())
        n_exact = len(cache.tokens) - cache.n_own
        if is_new:  # the slot may hold another text
            n_exact = min(n_exact, common_prefix_length(cache.tokens, list(followed.context[cache.first :])))
        self._cut(slot, cache, n_exact)

    def _cut(self, slot: int, cache: _HeadCache, n_keep: int) -> None:
        cache.n_own = 0
        if n_keep < len(cache.tokens):
            del cache.tokens[n_keep:]
            self._heads.trim(slot, cache.end if n_keep else 0)

    def _start(self, followed: _HeadSequence, slot: int) -> int | None:
        """The position of the first token that the head has not read; None if it cannot read on."""
        known = self._rows.first(slot, followed.context)
        if known >= len(followed.context) - 1:
            return None
        cache = self._caches[slot]
        if cache.tokens and cache.end >= known + 1:
            return cache.end
        return known + 1 if known or not self._heads.reads_first else 0

    def _span(self, followed: _HeadSequence, n_spare: int) -> HeadSpan:
        assert followed.slot is not None
        slot, cache = followed.slot, self._caches[followed.slot]
        start = self._start(followed, slot)
        assert start is not None
        if start != cache.end or not cache.tokens:
            self._cut(slot, cache, 0)
            cache.first = start
        tokens = followed.text(start, start + 1 + max(0, n_spare))
        rows = [self._row(followed, slot, position) for position in range(start, start + len(tokens))]
        return HeadSpan(slot, start, tokens, rows)

    def _row(self, followed: _HeadSequence, slot: int, position: int) -> NDArray[np.float32]:
        """The hidden state behind the token before `position`."""
        if position >= followed.base:
            return followed.own_rows[position - followed.base]
        return self._rows.row(slot, position - 1) if position else self._rows.nothing

    def _decode(self, spans: Sequence[HeadSpan]) -> list[HeadOutput]:
        outputs = self._heads.decode(spans)
        for span in spans:
            self._caches[span.slot].tokens += span.tokens
        return outputs

    def _forget_idle(self) -> None:
        """The cache is full: empty the slots without a sequence, or all."""
        in_use = {followed.slot for followed in self._followed.values()}
        idle = [slot for slot in self._caches if slot not in in_use and self._caches[slot].tokens]
        for slot in idle or list(self._caches):
            self._cut(slot, self._caches[slot], 0)

    # The draft

    def _grow(self, sequence: str, followed: _HeadSequence, output: HeadOutput | None) -> bool:
        """Add a token to a draft, if the head has read all before it."""
        assert followed.slot is not None
        cache = self._caches[followed.slot]
        if output is not None:
            cache.n_own = max(0, cache.end - followed.base)
            if cache.end < followed.end:
                return False
            followed.own_rows.append(output.row.copy())
        logits = followed.unranked if output is None else output.logits
        assert logits is not None
        try:
            self._choose(followed, logits)
        except PendingAnswerError:
            followed.unranked = logits.copy() if output else logits
            return False
        except Exception:
            log.exception("sequence %s: no longer drafting for it", sequence)
            followed.failed = True
            return False
        return True

    def _choose(self, followed: _HeadSequence, logits: NDArray[np.float32]) -> None:
        if followed.sampler is None:
            followed.sampler = self._make_sampler(followed.sampling, list(followed.tokens))
        (choice,) = followed.sampler.rank(logits, followed.end + followed.n_discarded, 1)
        followed.unranked = None
        followed.drafted.append(choice.token)
        followed.confidences.append(choice.confidence)
        followed.sampler.accept(choice.token)
