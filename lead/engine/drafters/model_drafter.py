"""A draft model in the engine process: the same drafter as in backs, called between two steps.

The drafter gets committed tokens only when the engine asks it to draft, so a sequence for which drafting does
not pay costs nothing.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median

from lead.engine.drafters.draft_source import Continuation, InlineDraft
from shared.drafting.drafter import Drafter
from shared.drafting.sequence_state import SequenceState
from shared.protocol import Close, Extend, Open
from shared.sampling.parameters import SamplingParameters

log = logging.getLogger("engine")

_N_TIMED = 7
"""The number of latest rounds whose times are kept for each number of threads; their median counts."""
_TRIAL = 6
"""Rounds of a trial of the other number of threads. The first round starts the threads, and is not timed."""
_MIN_TIMED = 3
"""A trial with fewer rounds of one token decides nothing. Rounds have more tokens if other sequences join."""
_FIRST_TRIAL, _MAX_BETWEEN = 16, 2048
"""The number of rounds before the first trial, and the maximum between two trials. Each failed trial doubles
the number."""
_MARGIN = 0.95
"""The other number of threads is used only if its time is below this share of the present number's time."""


class ModelDraft(InlineDraft):
    """The state of `drafter` for the sequence `name`; `tokens` are its committed tokens."""

    def __init__(
        self, name: str, sampling: SamplingParameters, tokens: Sequence[int], drafter: Drafter
    ) -> None:
        self.name = name
        self._sampling = sampling
        self._tokens = tokens
        self._drafter = drafter
        self._n_known = 0  # tokens that the drafter has received; 0: it does not know the sequence

    @property
    def n_pending(self) -> int | None:
        if not self.is_known:
            return len(self._tokens)
        self._extend()
        state = self._state
        return state.n_pending_after_move if state and state.can_extend else None

    @property
    def n_pending_now(self) -> int:
        """The value of `n_pending` after `bring_up_to_date`; 0 if the drafter has given up the sequence."""
        return self._state.n_pending_after_move if self._state else 0

    @property
    def continuation(self) -> Continuation:
        drafted = self._state.main.drafted if self._state else []
        return [each.token for each in drafted], [each.confidence for each in drafted]

    @property
    def is_known(self) -> bool:
        """True if the drafter has received the sequence."""
        return self._n_known > 0

    @property
    def _state(self) -> SequenceState | None:
        """The drafter's state of the sequence; None before it got the sequence, and after it gave up."""
        return self._drafter.sequences.get(self.name)

    def bring_up_to_date(self) -> None:
        """Send the drafter all committed tokens that it has not received."""
        if self.is_known:
            self._extend()
            return
        self._n_known = len(self._tokens)
        self._drafter.handle(Open(sequence=self.name, sampling=self._sampling, tokens=list(self._tokens)))

    def leave(self) -> None:
        if self.is_known:
            self._drafter.handle(Close(sequence=self.name, reason="ended"))
            self._n_known = 0

    def _extend(self) -> None:
        """Send new committed tokens. Does nothing for a sequence that the drafter has given up."""
        if new := self._tokens[self._n_known :]:
            self._drafter.handle(Extend(sequence=self.name, start=self._n_known, tokens=list(new)))
            self._n_known += len(new)


class ModelDrafter:
    """The `InlineDrafter` for a draft model."""

    def __init__(
        self, source: str, drafter: Drafter, n_max: int, threads: "ThreadChoice | None" = None
    ) -> None:
        """`drafter` must have room for the sequences of all slots, and draft without side branches.

        threads: chooses the number of threads of its model; None: the number is fixed.
        """
        self.source = source
        self.n_max = n_max
        self._drafter = drafter
        self._threads = threads
        self._has_opened = False

    def open(self, sequence: str, sampling: SamplingParameters, tokens: Sequence[int]) -> ModelDraft:
        return ModelDraft(sequence, sampling, tokens, self._drafter)

    def draft(self, drafts: Sequence[ModelDraft], n_max: int) -> tuple[int, Sequence[ModelDraft]]:
        self._has_opened = not all(each.is_known for each in drafts)
        for draft in drafts:
            draft.bring_up_to_date()
        n_before = sum(each.n_pending_now for each in drafts)
        by_name = {each.name: each for each in drafts}
        grown = [by_name[each.id] for each in self._drafter.step(list(by_name), n_max)]
        return min(n_before, max(n_max, len(drafts))), grown

    def on_round(self, n_tokens: int, seconds: float) -> bool:
        if self._has_opened:  # texts may have been stored and loaded
            return False
        return self._threads is None or self._threads.on_round(n_tokens, seconds)


class ThreadChoice:
    """Chooses the faster number of threads for rounds of one token: one thread, or as many as the target has.

    With several threads, a small model spends most of a step waiting at barriers. The choice depends on the
    load of the cores, which is higher while the engine and other processes start. So it is learned from the
    rounds of drafting.
    """

    def __init__(self, use: Callable[[int], None], used: int, other: int) -> None:
        """`use` sets the number of threads. `used` is the number already set, and `other` the alternative."""
        self._use = use
        self._used, self._other = used, other
        self._times: dict[int, deque[float]] = {n: deque(maxlen=_N_TIMED) for n in (used, other)}
        self._between = _FIRST_TRIAL
        self._n_rounds = 0  # since the last trial
        self._n_tried = 0  # of the trial that goes on

    def on_round(self, n_tokens: int, seconds: float) -> bool:
        """Record that a round of `n_tokens` took `seconds`; return False if the round belonged to a trial."""
        if self._n_tried:
            self._try(seconds if n_tokens == 1 else None)
            return False
        if n_tokens != 1:
            return True
        self._times[self._used].append(seconds)
        self._n_rounds += 1
        if self._n_rounds >= self._between:
            self._n_rounds, self._n_tried = 0, 1
            self._times[self._other].clear()
            self._use(self._other)
        return True

    def _try(self, seconds: float | None) -> None:
        """Count a round of a trial. seconds: the time of a round of one token; None: the round had more
        tokens.
        """
        times = self._times[self._other]
        if self._n_tried > 1 and seconds is not None:
            times.append(seconds)
        self._n_tried += 1
        if self._n_tried <= _TRIAL:
            return
        self._n_tried = 0
        then = median(self._times[self._used])
        if len(times) >= _MIN_TIMED and (now := median(times)) < _MARGIN * then:
            self._used, self._other = self._other, self._used
            self._between = _FIRST_TRIAL
            log.info(
                "draft model: using %d thread%s, %.2f ms per token instead of %.2f",
                self._used,
                "" if self._used == 1 else "s",
                1000 * now,
                1000 * then,
            )
        else:
            self._between = min(2 * self._between, _MAX_BETWEEN)
        self._use(self._used)
