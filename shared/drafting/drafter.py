"""Drafting: keeps a small model's KV cache equal to `committed + its own draft`, for several sequences.

Calls in, values out: knows no network, no threads and no clock. `handle` takes the lead's messages; each
`step` is one decode over all sequences with something to do; `draft` returns what there is to send.

A step serves the main paths first. As long as one of them has fewer tokens than the lead verifies in one
step, no branch may slow it down; then a few branch tokens are decoded in the same step, and once the main
paths are complete, only branches.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shared.drafting import side_branches
from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.interfaces import DraftModel, LookAhead, MakeSampler
from shared.drafting.sequence_state import DraftedToken, DraftPath, SequenceState, Work, spans_of
from shared.drafting.side_branches import BranchCandidate
from shared.drafting.slot_pool import SlotPool
from shared.errors import KvCacheFullError, PendingAnswerError
from shared.protocol import Close, Draft, Extend, Open, Tune
from shared.sampling.constrained import GrammarBudget
from shared.sampling.coupled_choice import RankedToken
from shared.sampling.sampler import Sampler
from shared.slot_cache import SlotCache

log = logging.getLogger("drafter")

_MAX_COMMITTED = 1 << 24
"""No lead writes a longer text; one that never stops would fill this program's memory."""
_GRAMMAR_SECONDS = 0.002
"""For answers about grammars in one step; longer ones are awaited while other paths go on."""

DrafterMessage = Open | Extend | Close | Tune
RankedPath = tuple[SequenceState, DraftPath, list[RankedToken] | None]


class Drafter:
    """Drafts for up to `n_slots` sequences."""

    def __init__(
        self,
        model: DraftModel,
        options: DrafterOptions,
        make_sampler: MakeSampler,
        end_tokens: frozenset[int],
        budget: GrammarBudget | None = None,
        *,
        look_ahead: LookAhead | None = None,
    ) -> None:
        self._model = model
        self._look_ahead = look_ahead
        self._budget = budget or GrammarBudget()
        self._options = options
        self._tuned: dict[int, DrafterOptions] = {}  # by group
        self._make_sampler = make_sampler
        self._end_tokens = end_tokens
        self._slots = SlotPool(
            model, options.n_slots, options.n_model_slots, model.traits, options.prompt_cache
        )
        self._sequences: dict[str, SequenceState] = {}
        self._cache_is_full = False  # since the last sequence ended; there are no branches then
        self._logged_full = False
        self._logged_unusable = False
        self.n_decoded: Counter[int] = Counter()
        """Tokens in the last step, by group."""
        self.n_right: Counter[int] = Counter()
        self.n_wrong: Counter[int] = Counter()
        """Draft tokens that were committed, and those in whose place others were, by group."""

    @property
    def idle(self) -> bool:
        """Nothing to do until the next message of the lead."""
        return not any(self._has_work(state) for state in self._sequences.values())

    @property
    def waiting(self) -> dict[int, list[str]]:
        """The sequences with something to do, by group."""
        waiting: defaultdict[int, list[str]] = defaultdict(list)
        for state in self._sequences.values():
            if self._has_work(state):
                waiting[state.group].append(state.id)
        return waiting

    def handle(self, message: DrafterMessage, group: int = 0) -> None:
        """Apply a message of the lead whose sequences are `group`.

        One that cannot be drafted for, or belongs to another lead, is ignored: its text stays the same.
        """
        match message:
            case Open():
                self._open(message, group)
            case Tune():
                self._tune(message, group)
            case Extend() | Close():
                state = self._sequences.get(message.sequence)
                if state is None or state.group != group:
                    return
                if isinstance(message, Extend):
                    self._extend(state, message)
                else:
                    self._close(state)

    def reset(self, group: int = 0) -> None:
        """Drop the sequences of a group: the connection to its lead is lost.

        The caches stay, for when the same texts come back.
        """
        for state in [state for state in self._sequences.values() if state.group == group]:
            self._close(state)
        self._tuned.pop(group, None)

    @property
    def sequences(self) -> Collection[SequenceState]:
        """All that are drafted for; only `unsent` may be changed."""
        return self._sequences.values()

    def draft(self, sequence: str) -> Draft | None:
        """The current draft of a sequence; None if it is empty or the sequence has ended."""
        state = self._sequences.get(sequence)
        return state.draft() if state else None

    def follows(self, sequence: str) -> bool:
        """Whether `sequence` is being drafted for: it was opened, and nothing has gone wrong since."""
        return sequence in self._sequences

    @property
    def has_moved(self) -> bool:
        """See `SlotTable.has_moved`."""
        return self._slots.has_moved

    def n_pending(self, sequence: str) -> int:
        """The number of tokens to decode before the next draft token of a sequence can be chosen."""
        state = self._sequences[sequence]
        return state.n_pending_after_move(self._options.n_window)

    def can_extend(self, sequence: str) -> bool:
        """Whether the draft of a sequence may get another token."""
        state = self._sequences.get(sequence)
        return state is not None and state.can_extend(self._end_tokens)

    def drafted(self, sequence: str) -> Sequence[DraftedToken]:
        """The current draft of a sequence, without side branches; empty if the sequence has ended."""
        state = self._sequences.get(sequence)
        return state.main.drafted if state else ()

    def step(self, only: Collection[str] | None = None, n_most: int | None = None) -> list[SequenceState]:
        """One decode; the sequences whose drafts have grown, once for each new token.

        only: of these sequences; None: of all. n_most: tokens in the batch, at least one for each of them;
        None: as many as it holds.
        """
        self.n_decoded.clear()
        self._budget.set(0.0)
        grown = self._rank_again()
        work = self._choose_work(only)
        self._budget.set(_GRAMMAR_SECONDS)
        return grown + (self._decode(work, n_most) if work else self._rank_again())

    def _decode(self, work: Work, n_most: int | None) -> list[SequenceState]:
        n_most = self._model.n_batch if n_most is None else min(n_most, self._model.n_batch)
        spans = spans_of(work, n_most, self._options.n_chunk)
        try:
            logits = self._model.decode(spans)
        except KvCacheFullError:
            self._make_room()
            return []
        for (state, path), span in zip(work, spans, strict=True):
            path.cache.add(span.tokens)
            self.n_decoded[state.group] += len(span.tokens)
        self._slots.save(path.cache for (_, path), span in zip(work, spans, strict=True) if span.n_logits)
        return self._append_tokens(
            (state, path, rows[0]) for (state, path), rows in zip(work, logits, strict=True) if len(rows)
        )

    def check_integrity(self) -> None:
        """Raise AssertionError unless each slot is used once and holds the tokens of its path."""
        self._slots.check_integrity(self._slots_in_use())
        for state in self._sequences.values():
            assert len(state.branches) <= self._options.n_branches
            state.check_integrity()

    # Messages of the lead

    def _open(self, message: Open, group: int) -> None:
        if not self._slots or message.sequence in self._sequences or not self._has_tokens(message.tokens):
            return
        try:
            sampler = self._make_sampler(message.sampling, message.tokens)
        except Exception:
            log.exception("sequence %s: cannot draft for it", message.sequence)
            return
        slot = self._slots.take(message.tokens)
        previous = list(slot.tokens)
        # The last token is always decoded, for its logits.
        slot.keep(min(slot.shared_with(message.tokens), max(0, len(message.tokens) - 1)))
        main = DraftPath(slot, sampler, len(message.tokens))
        self._sequences[message.sequence] = SequenceState(
            message.sequence,
            message.sampling,
            list(message.tokens),
            main,
            self._tuned.get(group, self._options),
            group,
            previous_cache=previous,
        )

    def _extend(self, state: SequenceState, message: Extend) -> None:
        n_known = len(state.committed) - message.start
        too_long = message.start + len(message.tokens) > _MAX_COMMITTED
        if n_known < 0 or too_long or not self._has_tokens(message.tokens):
            self._log_unusable(message)
            self._close(state)
            return
        if new := message.tokens[n_known:]:
            with self._closing_on_error(state):
                self._score(state, new)
                self._slots.give_back_branches(state.commit(new))
                state.restore_cache()

    def _score(self, state: SequenceState, tokens: Sequence[int]) -> None:
        n_right = state.main.n_matching(tokens)
        self.n_right[state.group] += n_right
        self.n_wrong[state.group] += n_right < min(len(tokens), len(state.main.drafted))

    def _log_unusable(self, message: Extend) -> None:
        log.log(
            logging.DEBUG if self._logged_unusable else logging.WARNING,
            "sequence %s: no longer drafting for it: the lead's tokens %d to %d cannot be right",
            message.sequence,
            message.start,
            message.start + len(message.tokens),
        )
        self._logged_unusable = True

    def _tune(self, message: Tune, group: int) -> None:
        n_ahead = min(self._options.n_ahead, message.n_ahead)
        tuned = replace(self._options, n_ahead=n_ahead, min_confidence=message.min_confidence)
        self._tuned[group] = tuned
        for state in self._sequences.values():
            if state.group == group:
                state.options = tuned

    def _close(self, state: SequenceState) -> None:
        del self._sequences[state.id]
        slot = state.main.cache
        if state.window_start:  # tokens from the middle of a text are not the prefix of another
            slot.keep(0)
        self._slots.give_back(slot)
        self._drop_branches(state)
        self._cache_is_full = False

    def _has_tokens(self, tokens: Sequence[int]) -> bool:
        """A lead with a larger vocabulary of the same family may use ids that this model does not have."""
        return all(0 <= token < self._model.n_vocab for token in tokens)

    # A step

    def _choose_work(self, only: Collection[str] | None) -> Work:
        """The paths to decode, main paths first."""
        drafting = [
            state
            for state in self._sequences.values()
            if (only is None or state.id in only)
            and state.can_extend(self._end_tokens)
            and not state.main.cache.loading
        ]
        for state in drafting:
            self._slots.give_back_branches(state.move_window(self._options.n_window))
        for state in self._sequences.values():
            state.previous_cache = []
        self._slots.trim_all()
        work = [(state, state.main) for state in drafting[: self._model.n_batch]]
        if not any(len(state.main.drafted) < state.options.n_per_step for state in drafting):
            for state in self._sequences.values():
                if only is not None and state.id not in only:
                    continue
                work += [(state, branch) for branch in self._choose_branches(state, state in drafting)]
        return work[: self._model.n_batch]

    def _choose_branches(self, state: SequenceState, with_main: bool) -> list[DraftPath]:
        if not self._may_branch(state):
            return []
        n = self._options.n_with_main if with_main else self._options.n_branches
        chosen = side_branches.choose(state, state.options, self._end_tokens, n)
        paths = [
            self._start_branch(state, each) if isinstance(each, BranchCandidate) else each for each in chosen
        ]
        return [path for path in paths if path]

    def _start_branch(self, state: SequenceState, candidate: BranchCandidate) -> DraftPath | None:
        try:
            sampler = self._branch_sampler(state, candidate)
        except Exception:
            log.exception("sequence %s: no more side branches", state.id)
            state.can_branch = False
            return None
        n_shared = candidate.start - state.window_start
        slot = self._slots.take_branch(state.main.cache, n_shared)
        first = DraftedToken(candidate.first.token, candidate.first.confidence)
        branch = DraftPath(slot, sampler, candidate.start, [first])
        state.branches.append(branch)
        return branch

    def _branch_sampler(self, state: SequenceState, candidate: BranchCandidate) -> Sampler:
        """If the choice of a token does not depend on the tokens before it, all paths share one sampler."""
        main = state.main
        if not state.sampling.remembers:
            return main.sampler
        history = [*state.committed, *main.tokens[: candidate.start - main.start], candidate.first.token]
        return self._make_sampler(state.sampling, history, main.sampler)

    def _rank_again(self) -> list[SequenceState]:
        """Go on with paths whose grammar was not ready when they were decoded."""
        waiting = [(state, path) for state in self._sequences.values() for path in state.unranked]
        return self._append_tokens(
            (state, path, path.unranked)
            for state, path in waiting
            if path.unranked is not None and path.sampler.is_ready
        )

    def _append_tokens(
        self, decoded: Iterable[tuple[SequenceState, DraftPath, NDArray[np.float32]]]
    ) -> list[SequenceState]:
        """Choose the next token of each path from its logits."""
        chosen = [(state, path, self._rank(state, path, logits)) for state, path, logits in decoded]
        if self._look_ahead:
            chosen = self._refine(chosen, self._look_ahead)
        return [
            state for state, path, choices in chosen if choices and self._append_token(state, path, choices)
        ]

    def _rank(
        self, state: SequenceState, path: DraftPath, logits: NDArray[np.float32]
    ) -> list[RankedToken] | None:
        """The choices for the next token of a path; None after an error, or if its grammar is not ready."""
        if state.id not in self._sequences:  # closed by an error in this step
            return None
        with self._closing_on_error(state):
            try:
                return path.sampler.rank(logits, path.end, self._options.n_choices)
            except PendingAnswerError:
                path.unranked = logits.copy()  # the model reuses their memory
        return None

    def _refine(self, chosen: list[RankedPath], look_ahead: LookAhead) -> list[RankedPath]:
        """Choose again as long as the model has looked further; it does so a few times at most."""
        while better := look_ahead({path.cache.index: each[0].token for _, path, each in chosen if each}):
            chosen = [
                (state, path, self._rank(state, path, better[path.cache.index]))
                if choices and path.cache.index in better
                else (state, path, choices)
                for state, path, choices in chosen
            ]
        return chosen

    def _append_token(self, state: SequenceState, path: DraftPath, choices: list[RankedToken]) -> bool:
        """Whether that was done: False after an error."""
        if state.id not in self._sequences:
            return False
        with self._closing_on_error(state):
            state.append(path, choices, self._end_tokens)
            return True
        return False

    @contextmanager
    def _closing_on_error(self, state: SequenceState) -> Iterator[None]:
        """After an error in choosing its tokens a sequence gets no more drafts; its text stays the same."""
        try:
            yield
        except Exception:
            log.exception("sequence %s: no longer drafting for it", state.id)
            self._close(state)
            self._slots.recover(self._slots_in_use())

    def _has_work(self, state: SequenceState) -> bool:
        return state.can_extend(self._end_tokens) or self._can_extend_branches(state) or any(state.unranked)

    def _can_extend_branches(self, state: SequenceState) -> bool:
        if not self._may_branch(state):
            return False
        return bool(side_branches.choose(state, state.options, self._end_tokens, 1))

    def _may_branch(self, state: SequenceState) -> bool:
        return self._options.n_branches > 0 and not self._cache_is_full and state.can_branch

    # The cache

    def _slots_in_use(self) -> Iterable[SlotCache]:
        for state in self._sequences.values():
            yield from (path.cache for path in (state.main, *state.branches))

    def _make_room(self) -> None:
        """Drop what costs least: branches, then ended sequences, then the largest running one."""
        log.log(
            logging.DEBUG if self._logged_full else logging.WARNING,
            "the draft model's cache is full, drafting less: try a larger --ctx-size or a smaller --parallel",
        )
        self._logged_full = True
        if any(state.branches for state in self._sequences.values()):
            for state in self._sequences.values():
                self._drop_branches(state)
            self._cache_is_full = True
        elif not self._slots.clear_idle():
            largest = max(self._sequences.values(), key=lambda state: len(state.main.cache))
            self._close(largest)

    def _drop_branches(self, state: SequenceState) -> None:
        self._slots.give_back_branches([state.drop_branch(branch) for branch in state.branches])
