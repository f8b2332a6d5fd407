"""Drafting: keeps a small model's KV cache equal to `committed + its own draft`, for several sequences.

Calls in, values out: knows no network, no threads and no clock. `open`, `extend`, `close` follow the lead;
each `step` is one decode over all sequences with something to do, and returns the drafts that grew.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.llama.span import Span
from shared.protocol import Close, Draft, Extend, Open, Tune
from shared.sampling import Sampler, SamplingParameters
from shared.slot_cache import SlotCache

log = logging.getLogger("back")


class DraftModel(Protocol):
    """The seam to the model (`shared.llama.model.Model`)."""

    n_batch: int
    n_vocab: int

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """One forward pass; logits for each span, shape (n_logits, n_vocab)."""

    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first `n_keep` tokens of a slot in the cache."""


@dataclass(frozen=True, slots=True)
class DrafterOptions:
    """`n_window` is the most tokens of one sequence that the model can see at once.

    While some sequence drafts, the text of others is read in chunks of at most `n_chunk` tokens a step.
    """

    n_slots: int
    n_window: int
    n_ahead: int
    n_chunk: int = 64


@dataclass(slots=True)
class Followed:
    """A sequence being followed. The cache holds a window of committed + draft.

    committed + draft        [0 ......................... len(committed) + len(draft))
    the model's window           [window_start ...... up to n_window tokens)
    in the cache                 [window_start .. window_start + len(cache))
    """

    id: str
    sampler: Sampler
    cache: SlotCache
    committed: list[int]
    draft: list[int] = field(default_factory=list)
    window_start: int = 0

    @property
    def n_tokens(self) -> int:
        return len(self.committed) + len(self.draft)

    @property
    def n_todo(self) -> int:
        """Tokens to decode before the next one can be drafted."""
        return self.n_tokens - self.window_start - len(self.cache)

    def todo(self, n: int) -> list[int]:
        """The next `n` tokens to decode."""
        start = self.window_start + len(self.cache)
        if start >= len(self.committed):
            return self.draft[start - len(self.committed) :][:n]
        return [*self.committed[start : start + n], *self.draft][:n]

    def advance(self, tokens: Sequence[int]) -> None:
        """The lead has committed `tokens`: keep what agrees, drop the rest."""
        n_agreeing = next(
            (i for i, pair in enumerate(zip(self.draft, tokens, strict=False)) if pair[0] != pair[1]),
            min(len(self.draft), len(tokens)),
        )
        n_valid = len(self.committed) + n_agreeing
        self.committed += tokens
        if n_agreeing == len(tokens):
            del self.draft[: len(tokens)]
            return
        self.draft = []
        self.cache.keep(max(0, n_valid - self.window_start))
        self.sampler.rewind(self.committed)

    def slide(self, n_window: int) -> None:
        """Move a window that is full: read its later half anew, from position 0.

        Back again, too, when a rejected draft leaves the text shorter than the window's start.
        Drafting stays right with any window, because the lead verifies.
        """
        if 0 < self.n_tokens - self.window_start < n_window:
            return
        self.window_start = max(0, self.n_tokens - max(1, n_window // 2))
        self.cache.keep(0)


class Drafter:
    """Follows up to `n_slots` sequences."""

    def __init__(
        self,
        model: DraftModel,
        options: DrafterOptions,
        make_sampler: Callable[[SamplingParameters, list[int]], Sampler],
        end_tokens: frozenset[int],
    ) -> None:
        """`make_sampler` takes the parameters of a sequence and its tokens so far."""
        self._model = model
        self._options = options
        self._make_sampler = make_sampler
        self._end_tokens = end_tokens
        self._free = [SlotCache(index) for index in range(options.n_slots)]
        self._followed: dict[str, Followed] = {}

    @property
    def idle(self) -> bool:
        """Nothing to do until the lead says something."""
        return not any(self._wants(followed) for followed in self._followed.values())

    def follow(self, message: Open | Extend | Close | Tune) -> None:
        """Take in what the lead says. A sequence that cannot be followed is left alone: it costs no text."""
        match message:
            case Open():
                self._open(message)
            case Extend():
                self._extend(message)
            case Close():
                self._close(message.sequence)
            case Tune():
                self._tune(message)

    def reset(self) -> None:
        """The connection is gone: follow nothing. The caches stay, for when the same texts come back."""
        for sequence in list(self._followed):
            self._close(sequence)

    def step(self) -> list[Draft]:
        """One decode; the drafts that it made longer."""
        working = [followed for followed in self._followed.values() if self._wants(followed)]
        for followed in working:
            followed.slide(self._options.n_window)
        working = working[: self._model.n_batch]
        if not working:
            return []
        for cache in [*self._free, *(followed.cache for followed in self._followed.values())]:
            if trim := cache.take_trim():
                self._model.trim(*trim)
        spans = self._spans(working)
        logits = self._model.decode(spans)
        return [
            draft
            for followed, span, rows in zip(working, spans, logits, strict=True)
            if (draft := self._take(followed, span, rows))
        ]

    def _open(self, message: Open) -> None:
        if not self._free or message.sequence in self._followed or not self._known(message.tokens):
            return
        slot = max(self._free, key=lambda cache: cache.affinity(message.tokens))
        self._free.remove(slot)
        # The last token is always decoded, for its logits.
        slot.keep(min(slot.shared_with(message.tokens), max(0, len(message.tokens) - 1)))
        sampler = self._make_sampler(message.sampling, message.tokens)
        self._followed[message.sequence] = Followed(message.sequence, sampler, slot, list(message.tokens))

    def _extend(self, message: Extend) -> None:
        followed = self._followed.get(message.sequence)
        if followed is None:
            return
        n_known = len(followed.committed) - message.start
        if n_known < 0 or not self._known(message.tokens):
            log.warning("sequence %s cannot be followed any further", message.sequence)
            self._close(message.sequence)
            return
        if new := message.tokens[n_known:]:
            followed.advance(new)

    def _tune(self, message: Tune) -> None:
        self._options = replace(self._options, n_ahead=message.n_ahead)

    def _close(self, sequence: str) -> None:
        followed = self._followed.pop(sequence, None)
        if followed is None:
            return
        if followed.window_start:  # what begins in the middle of a text is no prefix of another
            followed.cache.keep(0)
        self._free.append(followed.cache)

    def _known(self, tokens: Sequence[int]) -> bool:
        """A lead with a larger vocabulary of the same family may use ids that this model does not have."""
        return all(0 <= token < self._model.n_vocab for token in tokens)

    def _wants(self, followed: Followed) -> bool:
        if not followed.n_tokens or len(followed.draft) >= self._options.n_ahead:
            return False
        return not followed.draft or followed.draft[-1] not in self._end_tokens

    def _spans(self, working: list[Followed]) -> list[Span]:
        """One token for each that drafts; the others share the rest of the batch."""
        drafting = any(followed.n_todo == 1 for followed in working)
        n_spare = self._model.n_batch - len(working)
        if drafting:
            n_spare = min(n_spare, self._options.n_chunk)
        spans = []
        for followed in working:
            n = 1 + min(followed.n_todo - 1, n_spare)
            n_spare -= n - 1
            n_logits = 1 if n == followed.n_todo else 0
            spans.append(Span(followed.cache.index, len(followed.cache), followed.todo(n), n_logits))
        return spans

    def _take(self, followed: Followed, span: Span, rows: NDArray[np.float32]) -> Draft | None:
        followed.cache.add(span.tokens)
        if not span.n_logits:
            return None
        token = followed.sampler.choose(rows[0], followed.n_tokens)
        followed.sampler.accept(token)
        followed.draft.append(token)
        return Draft(sequence=followed.id, base=len(followed.committed), tokens=list(followed.draft))
