"""Drafting: keeps a small model's KV cache equal to `committed + its own draft`, for several sequences.

It does no I/O and knows no threads or clock. `handle` takes the lead's messages. Each `step` is one decode
over all sequences with work. `take_due` returns the drafts to send after a step.

A step decodes one token of each of the likeliest branches, main and side. The number of branches maximizes
the sum of their probabilities divided by T(n), which is learned. Where T(n) rises steeply, only the main
branch is decoded until it is long or doubtful. Where T(n) is flat, many side branches are decoded together.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.interfaces import DraftModel, Interrupt, LookAhead, MakeSampler
from shared.drafting.sequence_state import DraftBranch, SequenceState, Work, spans_of
from shared.drafting.slot_pool import SlotPool
from shared.errors import DecodeAbortedError, KvCacheFullError, PendingAnswerError
from shared.llama.span import Span
from shared.protocol import Close, Draft, Extend, Open, Tune
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.parameters import MAX_TEXT_TOKENS
from shared.sampling.sampler import RankedToken, Sampler
from shared.slot_cache import SlotCache
from shared.step_cost import StepCost

log = logging.getLogger("drafter")

_MIN_BRANCH_PROBABILITY = 0.02
"""Drafting a side branch's token pays from this probability on, if the token costs as much as a decode of one
token. If it costs less, the minimum is lower."""
_GRAMMAR_SECONDS = 0.002
"""The time that a step waits for answers about grammars; branches without an answer skip steps."""

DrafterMessage = Open | Extend | Close | Tune
ValuedBranch = tuple[float, SequenceState, DraftBranch]
"""A branch to continue: (value of its next token, sequence, branch)."""
RankedBranch = tuple[SequenceState, DraftBranch, list[RankedToken] | None]


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
        interrupt: Interrupt | None = None,
    ) -> None:
        """interrupt: stops the model's decodes; None: they cannot be stopped."""
        self._model = model
        self._look_ahead = look_ahead
        self._interrupt = interrupt
        self._under_way: tuple[Work, list[Span]] = (), []  # the decode, between `begin` and `finish`
        self._budget = budget or GrammarBudget()
        self._options = options
        self._tuned: dict[int, DrafterOptions] = {}  # options as each lead has tuned them, by group
        self._cost = StepCost()  # T(n) of the draft model
        self._make_sampler = make_sampler
        self._end_tokens = end_tokens
        self._slots = SlotPool(
            model, options.n_slots, options.n_model_slots, model.traits, options.prompt_cache
        )
        self.sequences: dict[str, SequenceState] = {}
        """The open sequences, by name."""
        self._cache_is_full = False  # no cells were left; no branches then, until a sequence ends
        self._logged_full = False  # each of these two is logged once
        self._logged_unusable = False
        self.n_decoded: Counter[int] = Counter()
        """The number of tokens in the last step, by group."""

    @property
    def idle(self) -> bool:
        """True if there is nothing to do until the lead's next message."""
        return not any(self._has_work(state) for state in self.sequences.values())

    @property
    def waiting(self) -> dict[int, list[str]]:
        """The names of sequences with work, by group."""
        waiting: defaultdict[int, list[str]] = defaultdict(list)
        for state in self.sequences.values():
            if self._has_work(state):
                waiting[state.group].append(state.id)
        return waiting

    def handle(
        self, message: DrafterMessage, group: int = 0, times: tuple[float, float] | None = None
    ) -> tuple[int, int]:
        """Apply a message of the lead whose sequences are in `group`; return the result of
        `SequenceState.commit`.

        Messages about sequences that cannot be drafted for, or that belong to another lead, are ignored.
        times: when the message arrived and when it is handled, in seconds; the next draft reports them.
        """
        match message:
            case Open():
                self._open(message, group)
            case Tune():
                self._tune(message, group)
            case Extend() | Close():
                state = self.sequences.get(message.sequence)
                if state is None or state.group != group:
                    return 0, 0
                if isinstance(message, Extend):
                    return self._extend(state, message, times)
                self._close(state)
        return 0, 0

    def reset(self, group: int = 0) -> None:
        """Drop the sequences of a group, after the connection to its lead is lost.

        Their caches are kept, in case the same texts come back.
        """
        for state in [state for state in self.sequences.values() if state.group == group]:
            self._close(state)
        self._tuned.pop(group, None)

    def step(self, only: Collection[str] | None = None, n_max: int | None = None) -> list[SequenceState]:
        """Decode once; return the sequences whose drafts have grown, each once for every new token.

        only: decode only these sequences; None: all. n_max: the maximum number of tokens in the batch, at
        least one per sequence; None: as many as the batch can hold.
        """
        grown = self.begin(only, n_max)
        return grown + self.finish()

    def begin(self, only: Collection[str] | None = None, n_max: int | None = None) -> list[SequenceState]:
        """Do the first part of `step`: choose the tokens to decode."""
        if self._interrupt:
            self._interrupt.clear()
        self._budget.set(0.0)
        grown = self._rank_again()
        work = self._choose_work(only)
        n_max = self._model.n_batch if n_max is None else min(n_max, self._model.n_batch)
        spans = spans_of(work, n_max, self._options.n_chunk)
        self._under_way = work, spans
        self.n_decoded.clear()
        for (state, _), span in zip(work, spans, strict=True):
            self.n_decoded[state.group] += len(span.tokens)
        return grown

    def finish(self) -> list[SequenceState]:
        """Do the second part of `step`: decode the chosen tokens."""
        work, spans = self._under_way
        self._budget.set(_GRAMMAR_SECONDS)
        try:
            return self._decode(work, spans) if work else self._rank_again()
        finally:
            self._under_way = (), []

    def interrupt(self, message: DrafterMessage, group: int = 0) -> bool:
        """Stop the current decode if `message` makes it useless; return whether it was stopped.

        Any thread may call it. A late call stops nothing, or a decode that will be repeated.
        """
        if self._interrupt is None or not self._makes_useless(message, group):
            return False
        self._interrupt.set()
        return True

    def _makes_useless(self, message: DrafterMessage, group: int) -> bool:
        work, spans = self._under_way
        if not isinstance(message, Extend) or not work or any(len(span.tokens) > 1 for span in spans):
            return False
        return all(
            (state.id, state.group) == (message.sequence, group)
            and message.start <= len(state.committed)
            and not state.can_follow(branch, message.tokens[len(state.committed) - message.start :])
            for state, branch in work
        )

    def learn(self, seconds: float) -> None:
        if n := self.n_decoded.total():
            self._cost.learn(n, seconds)

    def take_due(self, now: float, *, at_once: bool = False) -> list[tuple[int, Draft]]:
        """Return the drafts to send at the time `now` in seconds, each with the group of its sequence.

        If no draft can grow, or `at_once`, all drafts that have grown since they were last sent are due.
        `at_once`: the lead has sent a message, and is about to choose the draft tokens to verify.
        """
        at_once = at_once or self.idle
        due = [state for state in self.sequences.values() if at_once or state.is_due(now)]
        return [(state.group, draft) for state in due if (draft := state.take_draft(now))]

    def _decode(self, work: Work, spans: Sequence[Span]) -> list[SequenceState]:
        try:
            logits = self._model.decode(spans)
        except (KvCacheFullError, DecodeAbortedError) as error:
            self.n_decoded.clear()
            if isinstance(error, KvCacheFullError):
                self._make_room()
            else:
                for span in spans:
                    self._model.trim(span.slot, span.start)
            return []
        for (_, branch), span in zip(work, spans, strict=True):
            branch.cache.add(span.tokens)
        self._slots.save(branch.cache for (_, branch), span in zip(work, spans, strict=True) if span.n_logits)
        return self._append_tokens(
            (state, branch, rows[0]) for (state, branch), rows in zip(work, logits, strict=True) if len(rows)
        )

    def check_integrity(self) -> None:
        """Raise AssertionError unless each slot is used once and holds the tokens of its branch."""
        self._slots.check_integrity(self._slots_in_use())
        for state in self.sequences.values():
            assert len(state.branches) <= self._options.n_branches
            state.check_integrity()

    # Messages of the lead

    def _open(self, message: Open, group: int) -> None:
        if not self._slots or message.sequence in self.sequences or not self._has_tokens(message.tokens):
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
        main = DraftBranch(len(message.tokens)).begin(slot, sampler)
        self.sequences[message.sequence] = SequenceState(
            message.sequence,
            message.sampling,
            list(message.tokens),
            main,
            self._tuned.get(group, self._options),
            self._end_tokens,
            self._slots.give_back_branch,
            group,
            message.part,
            previous_cache=previous,
        )

    def _extend(
        self, state: SequenceState, message: Extend, times: tuple[float, float] | None
    ) -> tuple[int, int]:
        state.part = message.part
        n_known = len(state.committed) - message.start
        too_long = message.start + len(message.tokens) > MAX_TEXT_TOKENS
        if n_known < 0 or too_long or not self._has_tokens(message.tokens):
            self._log_unusable(message)
            self._close(state)
        elif new := message.tokens[n_known:]:
            with self._closing_on_error(state):
                n_right, n_wrong = state.commit(new)
                state.restore_cache()
                state.corrected = times if n_wrong else None
                return n_right, n_wrong
        return 0, 0

    def _log_unusable(self, message: Extend) -> None:
        log.log(
            logging.DEBUG if self._logged_unusable else logging.WARNING,
            "sequence %s: drafting stops because the lead's tokens %d to %d leave a gap, are unknown or are "
            "too many",
            message.sequence,
            message.start,
            message.start + len(message.tokens),
        )
        self._logged_unusable = True

    def _tune(self, message: Tune, group: int) -> None:
        n_ahead = min(self._options.n_ahead, message.n_ahead)
        tuned = replace(self._options, n_ahead=n_ahead, min_confidence=message.min_confidence)
        self._tuned[group] = tuned
        for state in self.sequences.values():
            if state.group == group:
                state.options = tuned

    def _close(self, state: SequenceState) -> None:
        del self.sequences[state.id]
        slot = state.main.cache
        if state.window_start:  # tokens from the middle of a text are not the prefix of another
            slot.keep(0)
        self._slots.give_back(slot)
        state.drop_branches()
        self._cache_is_full = False

    def _has_tokens(self, tokens: Sequence[int]) -> bool:
        """Return whether the model has these tokens; a larger model of the same family may have more."""
        return all(0 <= token < self._model.n_vocab for token in tokens)

    # A step

    def _choose_work(self, only: Collection[str] | None) -> Work:
        """Return the branches to decode, the likeliest first."""
        growing: list[ValuedBranch] = []
        for state in self.sequences.values():
            if only is None or state.id in only:
                if self._can_extend(state):
                    state.move_window()
                growing += self._growing(state)
        for state in self.sequences.values():
            state.previous_cache = []
        self._slots.trim_all()
        growing.sort(key=itemgetter(0), reverse=True)
        return [
            (state, branch) for _, state, branch in self._worthwhile(growing) if self._begin(state, branch)
        ]

    def _growing(self, state: SequenceState) -> Iterator[ValuedBranch]:
        """Yield the branches of a sequence that may get another token."""
        if self._can_extend(state):
            yield state.main.confidence, state, state.main
        if self._may_branch(state):
            for value, branch in state.growing_branches(self._min_probability):
                yield value, state, branch

    def _worthwhile(self, growing: list[ValuedBranch]) -> list[ValuedBranch]:
        """Return the first branches that together give the most probability per second; at least one.

        If none were returned, a draft that may grow would never do so, and the caller would step the drafter
        forever.
        """
        growing = growing[: self._model.n_batch]
        if not self._options.n_branches:
            return growing
        total = 0.0
        best, n_best = 0.0, 1
        n_prompt = sum(state.n_pending(branch) - 1 for _, state, branch in growing if branch is state.main)
        n_prompt = min(self._options.n_chunk, n_prompt)
        for n, (value, *_) in enumerate(growing, 1):
            total += value
            rate = total / self._cost.seconds(n_prompt + n)
            if rate > best:
                best, n_best = rate, n
        return growing[:n_best]

    @property
    def _min_probability(self) -> float:
        """The minimal probability of a side branch's next token."""
        n = 1 + self._options.n_branches
        return _MIN_BRANCH_PROBABILITY * min(1.0, self._cost.seconds(n) / (n * self._cost.seconds(1)))

    def _begin(self, state: SequenceState, branch: DraftBranch) -> bool:
        """Give a branch the slot and sampler that it needs to be decoded; return False after an error."""
        if branch is state.main or branch.key in state.branches:
            return True
        try:
            sampler = self._branch_sampler(state, branch)
        except Exception:
            log.exception("sequence %s: no more side branches", state.id)
            state.can_branch = False
            return False
        slot = self._slots.take_branch(state.main.cache, branch.start - state.window_start)
        state.branches[branch.key] = branch.begin(slot, sampler)
        return True

    def _branch_sampler(self, state: SequenceState, branch: DraftBranch) -> Sampler:
        """Return the sampler of a side branch.

        All branches share one if choices do not depend on earlier tokens.
        """
        main = state.main
        if not state.sampling.remembers:
            return main.sampler
        history = [*state.committed, *main.tokens[: branch.start - main.start], *branch.tokens]
        return self._make_sampler(state.sampling, history, main.sampler)

    def _rank_again(self) -> list[SequenceState]:
        """Continue branches whose grammar was not ready when they were decoded."""
        waiting = [(state, branch) for state in self.sequences.values() for branch in state.unranked]
        return self._append_tokens(
            (state, branch, branch.unranked)
            for state, branch in waiting
            if branch.unranked is not None and branch.sampler.is_ready
        )

    def _append_tokens(
        self, decoded: Iterable[tuple[SequenceState, DraftBranch, NDArray[np.float32]]]
    ) -> list[SequenceState]:
        """Choose the next token of each branch from its logits; return the sequences that have grown."""
        chosen = [(state, branch, self._rank(state, branch, logits)) for state, branch, logits in decoded]
        if self._look_ahead:
            chosen = self._refine(chosen, self._look_ahead)
        return [
            state
            for state, branch, choices in chosen
            if choices and self._append_token(state, branch, choices)
        ]

    def _rank(
        self, state: SequenceState, branch: DraftBranch, logits: NDArray[np.float32]
    ) -> list[RankedToken] | None:
        """Return the candidates for a branch's next token; None after an error, or if its grammar is not
        ready.
        """
        if state.id not in self.sequences:  # closed by an error in this step
            return None
        with self._closing_on_error(state):
            try:
                return branch.sampler.rank(logits, branch.end, self._options.n_choices)
            except PendingAnswerError:
                branch.unranked = logits.copy()  # the model reuses their memory
        return None

    def _refine(self, chosen: list[RankedBranch], look_ahead: LookAhead) -> list[RankedBranch]:
        """Choose again as long as the look-ahead returns better logits, which it does a few times at most."""
        while better := look_ahead({branch.cache.index: each[0].token for _, branch, each in chosen if each}):
            chosen = [
                (state, branch, self._rank(state, branch, better[branch.cache.index]))
                if choices and branch.cache.index in better
                else (state, branch, choices)
                for state, branch, choices in chosen
            ]
        return chosen

    def _append_token(self, state: SequenceState, branch: DraftBranch, choices: list[RankedToken]) -> bool:
        """Append a branch's next token; return False after an error."""
        if state.id not in self.sequences:
            return False
        with self._closing_on_error(state):
            state.append(branch, choices)
            return True
        return False

    @contextmanager
    def _closing_on_error(self, state: SequenceState) -> Iterator[None]:
        """Close the sequence if choosing its tokens raises an error; the lead's text is the same without
        drafts.
        """
        try:
            yield
        except Exception:
            log.exception("sequence %s: drafting stops", state.id)
            self._close(state)

    def _has_work(self, state: SequenceState) -> bool:
        return any(state.unranked) or state.can_extend or any(self._growing(state))

    @staticmethod
    def _can_extend(state: SequenceState) -> bool:
        return state.can_extend and not state.main.cache.loading

    def _may_branch(self, state: SequenceState) -> bool:
        return self._options.n_branches > 0 and not self._cache_is_full and state.can_branch

    # The cache

    def _slots_in_use(self) -> Iterable[SlotCache]:
        for state in self.sequences.values():
            yield from (branch.cache for branch in state.all_branches)

    def _make_room(self) -> None:
        """Free cells, cheapest first: side branches, then ended sequences, then the largest running
        sequence.
        """
        log.log(
            logging.DEBUG if self._logged_full else logging.WARNING,
            "the KV cache of the draft model is full, so fewer tokens are drafted. Raise --ctx-size (in a "
            "lead: --ctx-size-draft) or lower --parallel",
        )
        self._logged_full = True
        if any(state.branches for state in self.sequences.values()):
            for state in self.sequences.values():
                state.drop_branches()
            self._cache_is_full = True
        elif not self._slots.clear_idle():
            largest = max(self.sequences.values(), key=lambda state: len(state.main.cache))
            self._close(largest)
