"""Drafting: keeps a small model's KV cache equal to `committed + its own draft`, for several sequences.

Calls in, values out: knows no network, no threads and no clock. `follow` takes in what the lead says; each
`step` is one decode over all sequences with something to do; `draft` is what there is to send.

A step serves the main lines first. Until one has as many tokens as the lead checks at once, no branch may
slow it down; then branch tokens are decoded beside it, and with time to spare only those.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from back import branches
from back.branches import Fork
from back.followed import Followed
from back.line import Drafted, Line
from back.options import DrafterOptions
from back.pace import Growth, Urgency
from shared.errors import KvCacheFullError
from shared.llama.span import Span
from shared.protocol import Close, Draft, Extend, Open, Tune
from shared.sampling.sampler import Sampler, SamplingParameters
from shared.slot_cache import SlotCache

log = logging.getLogger("back")


class DraftModel(Protocol):
    """The seam to the model (`shared.llama.model.Model`)."""

    n_batch: int
    n_vocab: int

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """One forward pass; logits for each span, shape (n_logits, n_vocab). Raises KvCacheFullError."""

    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first `n_keep` tokens of a slot in the cache."""

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Share the first `n_keep` tokens of a slot with an empty one."""


class MakeSampler(Protocol):
    """The seam to llama.cpp's filters and grammars (`back.sampler.drafting_sampler`)."""

    def __call__(
        self, parameters: SamplingParameters, history: list[int], like: Sampler | None = None, /
    ) -> Sampler:
        """For a sequence whose tokens so far are `history`; `like` is that of a text that begins alike."""


class Drafter:
    """Follows up to `n_slots` sequences."""

    def __init__(
        self,
        model: DraftModel,
        options: DrafterOptions,
        make_sampler: MakeSampler,
        end_tokens: frozenset[int],
    ) -> None:
        self._model = model
        self._own_options = self._options = options
        self._make_sampler = make_sampler
        self._end_tokens = end_tokens
        self._caches = caches = [SlotCache(index) for index in range(options.n_model_slots)]
        # The caches of sequences that have ended stay: the same texts may come back. Branches do not.
        self._ended, self._spare = caches[: options.n_slots], caches[options.n_slots :]
        self._followed: dict[str, Followed] = {}
        self._cramped = False
        self._said_full = False

    @property
    def idle(self) -> bool:
        """Nothing to do until the lead says something."""
        return not any(
            self._wants_main(followed) or self._wants_branches(followed)
            for followed in self._followed.values()
        )

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
        self._options = self._own_options

    def draft(self, sequence: str) -> Draft | None:
        """What is drafted for a sequence now; None if there is nothing, or no such sequence."""
        followed = self._followed.get(sequence)
        return followed.draft() if followed else None

    def step(self) -> list[Growth]:
        """One decode; the drafts that it made longer."""
        work = self._choose()
        if not work:
            return []
        spans = self._spans(work)
        try:
            logits = self._model.decode(spans)
        except KvCacheFullError:
            self._make_room()
            return []
        for (_, line), span in zip(work, spans, strict=True):
            line.cache.add(span.tokens)
        return [
            growth
            for (followed, line), rows in zip(work, logits, strict=True)
            if len(rows) and (growth := self._take(followed, line, rows))
        ]

    # What the lead says

    def _open(self, message: Open) -> None:
        if not self._ended or message.sequence in self._followed or not self._known(message.tokens):
            return
        try:
            sampler = self._make_sampler(message.sampling, message.tokens)
        except Exception:
            log.exception("sequence %s cannot be followed", message.sequence)
            return
        slot = max(self._ended, key=lambda cache: cache.affinity(message.tokens))
        self._ended.remove(slot)
        before = list(slot.tokens)
        # The last token is always decoded, for its logits.
        slot.keep(min(slot.shared_with(message.tokens), max(0, len(message.tokens) - 1)))
        main = Line(slot, sampler, len(message.tokens))
        self._followed[message.sequence] = Followed(
            message.sequence, message.sampling, list(message.tokens), main, cached=before
        )

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
            with self._giving_up(followed):
                self._release(followed.advance(new))
                followed.revive()

    def _tune(self, message: Tune) -> None:
        n_ahead = min(self._own_options.n_ahead, message.n_ahead)
        self._options = replace(self._options, n_ahead=n_ahead, min_confidence=message.min_confidence)

    def _close(self, sequence: str) -> None:
        followed = self._followed.pop(sequence, None)
        if followed is None:
            return
        cache = followed.main.cache
        if followed.window_start:  # what begins in the middle of a text is no prefix of another
            cache.keep(0)
        self._ended.append(cache)
        self._drop_branches(followed)
        self._cramped = False

    def _known(self, tokens: Sequence[int]) -> bool:
        """A lead with a larger vocabulary of the same family may use ids that this model does not have."""
        return all(0 <= token < self._model.n_vocab for token in tokens)

    # A step

    def _choose(self) -> list[tuple[Followed, Line]]:
        """The lines to decode, main lines first."""
        drafting = [followed for followed in self._followed.values() if self._wants_main(followed)]
        for followed in drafting:
            self._release(followed.slide(self._options.n_window))
        self._settle()
        work = [(followed, followed.main) for followed in drafting[: self._model.n_batch]]
        if not any(len(followed.main.drafted) < self._options.n_at_once for followed in drafting):
            for followed in self._followed.values():
                work += [(followed, branch) for branch in self._side_work(followed, followed in drafting)]
        return work[: self._model.n_batch]

    def _side_work(self, followed: Followed, beside_main: bool) -> list[Line]:
        if not self._may_branch or not followed.branches_well:
            return []
        n = self._options.n_beside if beside_main else self._options.n_branches
        chosen = branches.choose(followed, self._options, self._end_tokens, n)
        lines = [self._start(followed, each) if isinstance(each, Fork) else each for each in chosen]
        return [line for line in lines if line]

    def _start(self, followed: Followed, fork: Fork) -> Line | None:
        try:
            sampler = self._branch_sampler(followed, fork)
        except Exception:
            log.exception("sequence %s gets no more side branches", followed.id)
            followed.branches_well = False
            return None
        cache = self._spare.pop()
        self._cut_back(cache)
        n_shared = fork.start - followed.window_start
        self._model.copy(followed.main.cache.index, cache.index, n_shared)
        cache.share(followed.main.cache, n_shared)
        first = Drafted(fork.runner_up.token, fork.runner_up.confidence)
        branch = Line(cache, sampler, fork.start, [first])
        followed.branches.append(branch)
        return branch

    def _branch_sampler(self, followed: Followed, fork: Fork) -> Sampler:
        """Where a choice needs no memory of the tokens before it, one sampler serves all lines."""
        main = followed.main
        if not followed.sampling.remembers:
            return main.sampler
        history = [*followed.committed, *main.tokens[: fork.start - main.start], fork.runner_up.token]
        return self._make_sampler(followed.sampling, history, main.sampler)

    def _spans(self, work: list[tuple[Followed, Line]]) -> list[Span]:
        """One token for each that drafts; the others share the rest of the batch."""
        drafting = any(followed.n_todo(line) == 1 for followed, line in work)
        n_spare = self._model.n_batch - len(work)
        if drafting:
            n_spare = min(n_spare, self._options.n_chunk)
        spans = []
        for followed, line in work:
            n_todo = followed.n_todo(line)
            n = 1 + min(n_todo - 1, n_spare)
            n_spare -= n - 1
            n_logits = 1 if n == n_todo else 0
            spans.append(Span(line.cache.index, len(line.cache), followed.todo(line, n), n_logits))
        return spans

    def _take(self, followed: Followed, line: Line, rows: NDArray[np.float32]) -> Growth | None:
        if followed.id not in self._followed:  # given up a moment ago
            return None
        with self._giving_up(followed):
            line.append(line.sampler.rank(rows[0], line.end, self._options.n_choices))
            return Growth(followed.id, self._urgency(followed, line))
        return None

    @contextmanager
    def _giving_up(self, followed: Followed) -> Iterator[None]:
        """Where choosing its tokens fails, a sequence is followed no longer: that costs no text."""
        try:
            yield
        except Exception:
            log.exception("sequence %s cannot be followed any further", followed.id)
            self._close(followed.id)
            self._release(self._lost())

    def _lost(self) -> list[SlotCache]:
        """Slots that were on their way from one place to another when something failed."""
        kept = {cache.index for cache in [*self._ended, *self._spare]}
        for followed in self._followed.values():
            kept.update(line.cache.index for line in (followed.main, *followed.branches))
        return [cache for cache in self._caches if cache.index not in kept]

    def _urgency(self, followed: Followed, line: Line) -> Urgency:
        n_at_once = self._options.n_at_once
        if line is not followed.main:
            return "later"
        if len(line.drafted) == n_at_once or not self._wants_main(followed):
            return "now"
        return "soon" if len(line.drafted) < n_at_once else "later"

    def _wants_main(self, followed: Followed) -> bool:
        drafted = followed.main.drafted
        if not followed.main.end or len(drafted) >= self._options.n_ahead:
            return False
        if not drafted:
            return True
        return (
            drafted[-1].token not in self._end_tokens
            and followed.main.confidence >= self._options.min_confidence
        )

    def _wants_branches(self, followed: Followed) -> bool:
        if not self._may_branch or not followed.branches_well:
            return False
        return bool(branches.choose(followed, self._options, self._end_tokens, 1))

    # The caches

    def check_integrity(self) -> None:
        """Raise AssertionError unless each slot is in one place and holds what its line says."""
        followed = list(self._followed.values())
        lines = [(each, line) for each in followed for line in (each.main, *each.branches)]
        slots = [*self._ended, *self._spare, *(line.cache for _, line in lines)]
        assert sorted(slot.index for slot in slots) == list(range(self._options.n_model_slots)), (
            "a slot is lost"
        )
        assert len(self._ended) + len(followed) == self._options.n_slots
        assert not any(self._spare), "a branch that was given up still holds tokens"
        for each in followed:
            assert len(each.branches) <= self._options.n_branches
            each.check_integrity()

    @property
    def _may_branch(self) -> bool:
        return self._options.n_branches > 0 and not self._cramped

    def _make_room(self) -> None:
        """Give up what costs least: branches, texts that have ended, and only then a sequence."""
        log.log(
            logging.DEBUG if self._said_full else logging.WARNING,
            "the draft model's cache is full, drafting less: try a larger --ctx-size or a smaller --parallel",
        )
        self._said_full = True
        if any(followed.branches for followed in self._followed.values()):
            for followed in self._followed.values():
                self._drop_branches(followed)
            self._cramped = True
        elif any(self._ended):
            for cache in self._ended:
                cache.keep(0)
        else:
            largest = max(self._followed.values(), key=lambda followed: len(followed.main.cache))
            self._close(largest.id)

    def _drop_branches(self, followed: Followed) -> None:
        self._release([followed.drop(branch) for branch in followed.branches])

    def _release(self, caches: Sequence[SlotCache]) -> None:
        for cache in caches:
            cache.keep(0)
        self._spare += caches

    def _settle(self) -> None:
        """Cut the model's cache back to what the books say is valid."""
        for followed in self._followed.values():
            followed.cached = []
        lines = [line for followed in self._followed.values() for line in (followed.main, *followed.branches)]
        for cache in [*self._ended, *self._spare, *(line.cache for line in lines)]:
            self._cut_back(cache)

    def _cut_back(self, cache: SlotCache) -> None:
        if trim := cache.take_trim():
            self._model.trim(*trim)
