"""A simulated back: drafts for the sequences of the lead as `back/` does, in simulated time.

It drafts the main paths first, then side branches, best first, when the main paths are long enough. Updates
that arrive during a decode are applied after it.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from lead.engine.commands import PostDraft
from lead.engine.events import Tuned
from lead.simulation.clock import VirtualClock
from lead.simulation.shared_machine import SharedMachine
from lead.simulation.text import DraftSkill, Guess, Text

_SEND_INTERVAL_S = 0.005
_MIN_BRANCH_PROBABILITY = 0.02
_BRANCH_TOKENS = 6
_N_BESIDE_MAIN = 1
_MAX_TOKENS = 64
_MAX_AHEAD = 16


@dataclass(frozen=True, slots=True)
class BackSpec:
    """A back: a decode of n tokens takes step_s * (1 + slope * (n - 1)); rtt_s is the round-trip time.

    `jitter` is the relative standard deviation of the duration of a decode. The back sends nothing after
    `silent_from` (seconds of simulated time).
    """

    step_s: float
    rtt_s: float = 0.0
    skill: DraftSkill = field(default_factory=lambda: DraftSkill(0.75))
    slope: float = 0.15
    message_s: float = 0.0003
    n_branches: int = 3
    silent_from: float = math.inf
    jitter: float = 0.0


class Opened(NamedTuple):
    """A new sequence with `n_committed` tokens."""

    sequence: str
    text: Text
    n_committed: int


class Extended(NamedTuple):
    """A sequence has `n_committed` tokens now."""

    sequence: str
    n_committed: int


class Closed(NamedTuple):
    """A sequence has ended."""

    sequence: str


SimulatedUpdate = Opened | Extended | Closed | Tuned


@dataclass(slots=True)
class _GuessPath:
    """Guesses for positions start, start + 1, …; `right`: they and all before them agree with the text."""

    start: int
    drafted: list[tuple[Guess, ...]] = field(default_factory=list)
    right: bool = True
    n_to_decode: int = 1

    @property
    def end(self) -> int:
        return self.start + len(self.drafted)

    @property
    def confidence(self) -> float:
        return math.prod(guesses[0].confidence for guesses in self.drafted)

    def append(self, guesses: tuple[Guess, ...]) -> None:
        self.right = self.right and guesses[0].token == Text.token(self.end)
        self.drafted.append(guesses)
        self.n_to_decode = 1

    def n_agreeing(self, n_committed: int) -> int:
        """How many of its tokens before position `n_committed` are those of the text."""
        for i, guesses in enumerate(self.drafted[: n_committed - self.start]):
            if guesses[0].token != Text.token(self.start + i):
                return i
        return min(len(self.drafted), n_committed - self.start)


class _BackSequence:
    """One sequence: the main path begins after the committed tokens, branches begin at positions of it."""

    def __init__(self, opened: Opened) -> None:
        self.id = opened.sequence
        self.text = opened.text
        self.n_committed = opened.n_committed
        self.main = _GuessPath(opened.n_committed)
        self.branches: list[_GuessPath] = []

    def advance(self, n_committed: int) -> None:
        """Keep what agrees with the committed tokens; a branch that agrees better becomes the main path."""
        before, self.n_committed = self.n_committed, n_committed
        end = self.main.start + self.main.n_agreeing(n_committed)
        branch = next((b for b in self.branches if b.start == end and b.n_agreeing(n_committed)), None)
        if end < n_committed and branch:
            self.main, self.branches = branch, []
            end = branch.start + branch.n_agreeing(n_committed)
        if end in {n_committed, self.main.end}:  # the path is right as far as it goes
            self.main.n_to_decode += n_committed - end
            del self.main.drafted[: n_committed - self.main.start]
            self.main.start = n_committed
            self.branches = [each for each in self.branches if each.start >= n_committed]
        else:
            self.main, self.branches = (
                _GuessPath(n_committed, n_to_decode=min(n_committed - before, n_committed - end)),
                [],
            )


class SimulatedBack:
    """One back. `receive` is called with each update that arrives, `post` with each draft."""

    def __init__(
        self,
        name: str,
        spec: BackSpec,
        clock: VirtualClock,
        post: Callable[[PostDraft], None],
        machine: SharedMachine | None = None,
    ) -> None:
        """machine: the lead's, if this back runs there, too."""
        self.name = name
        self._machine = machine
        self._spec = spec
        self._clock = clock
        self._post = post
        self._inbox: list[SimulatedUpdate] = []
        self._busy = False
        self._chosen: list[tuple[_BackSequence, _GuessPath]] | None = (
            None  # for the next step, if no updates arrive
        )
        self._sequences: dict[str, _BackSequence] = {}
        self._n_ahead = _MAX_AHEAD
        self._min_confidence = 0.0
        self._unsent: dict[str, None] = {}  # an ordered set
        self._flushed_at = -math.inf
        self._rng = random.Random(name)  # noqa: S311 - jitter

    def receive(self, update: SimulatedUpdate) -> None:
        """Handle an update from the lead: at once, or after the decode under way."""
        self._inbox.append(update)
        if not self._busy:
            self._start_step()

    def _start_step(self) -> None:
        """Apply the updates, then decode."""
        if self._inbox:
            for update in self._inbox:
                self._apply(update)
            self._inbox.clear()
            self._flush()
            self._chosen = None
        paths = self._chosen if self._chosen is not None else self._choose()
        self._chosen = None
        self._busy = bool(paths) and self._clock.now < self._spec.silent_from
        if self._busy:
            n = sum(path.n_to_decode for _, path in paths)
            self._decode(n, lambda: self._finish_step(paths))

    def _decode(self, n_tokens: int, done: Callable[[], None]) -> None:
        if self._machine:
            self._machine.run_back(self.name, self._decode_seconds(n_tokens), done)
        else:
            self._clock.after(self._decode_seconds(n_tokens), done)

    def _decode_seconds(self, n_tokens: int) -> float:
        seconds = self._spec.step_s * (1 + self._spec.slope * (n_tokens - 1))
        if self._spec.jitter:
            seconds *= max(0.2, self._rng.gauss(1.0, self._spec.jitter))
        return seconds

    def _finish_step(self, paths: list[tuple[_BackSequence, _GuessPath]]) -> None:
        for sequence, path in paths:
            guess = sequence.text.guesses if path.right else sequence.text.astray
            path.append(guess(self._spec.skill, path.end))
            self._unsent[sequence.id] = None
            if path is sequence.main and len(path.drafted) <= self._n_at_once:
                self._send(sequence.id)
        self._chosen = self._choose()
        if not self._chosen or self._clock.now - self._flushed_at >= _SEND_INTERVAL_S:
            self._flush()
        self._start_step()

    def _apply(self, update: SimulatedUpdate) -> None:
        match update:
            case Opened():
                self._sequences[update.sequence] = _BackSequence(update)
            case Extended():
                if sequence := self._sequences.get(update.sequence):
                    sequence.advance(update.n_committed)
            case Closed():
                self._sequences.pop(update.sequence, None)
                self._unsent.pop(update.sequence, None)
            case Tuned():
                self._n_ahead = min(_MAX_AHEAD, update.n_ahead)
                self._min_confidence = update.min_confidence

    # What to decode

    @property
    def _n_at_once(self) -> int:
        return max(1, self._n_ahead // 2)

    def _choose(self) -> list[tuple[_BackSequence, _GuessPath]]:
        drafting = [each for each in self._sequences.values() if self._wants_main(each)]
        paths = [(each, each.main) for each in drafting]
        if not any(len(each.main.drafted) < self._n_at_once for each in drafting):
            for sequence in self._sequences.values():
                n = _N_BESIDE_MAIN if sequence in drafting else self._spec.n_branches
                paths += [(sequence, path) for path in self._choose_branches(sequence, n)]
        return paths

    def _wants_main(self, sequence: _BackSequence) -> bool:
        main = sequence.main
        return (
            len(main.drafted) < self._n_ahead
            and main.end < sequence.text.n_tokens
            and main.confidence >= self._min_confidence
        )

    def _choose_branches(self, sequence: _BackSequence, n: int) -> list[_GuessPath]:
        """At most `n` branches to continue or to start, best first; new ones are started here."""
        if self._spec.n_branches == 0:
            return []
        prefix_probabilities = [1.0]
        for guesses in sequence.main.drafted:
            prefix_probabilities.append(prefix_probabilities[-1] * guesses[0].confidence)
        start = sequence.main.start
        continued = [
            (prefix_probabilities[branch.start - start] * branch.confidence, branch)
            for branch in sequence.branches
            if len(branch.drafted) < _BRANCH_TOKENS
            and branch.end < min(start + self._n_ahead, sequence.text.n_tokens)
        ]
        minimum = max(_MIN_BRANCH_PROBABILITY, self._min_confidence / 2)
        n_room = self._spec.n_branches - len(sequence.branches)
        candidates = self._candidates(sequence, prefix_probabilities, minimum) if n_room > 0 else []
        new = sorted(candidates, key=lambda pair: -pair[0])[:n_room]
        chosen = sorted([*continued, *new], key=lambda pair: -pair[0])[:n]
        paths = [path for probability, path in chosen if probability >= minimum]
        sequence.branches += [path for path in paths if not any(path is each for each in sequence.branches)]
        return paths

    def _candidates(
        self, sequence: _BackSequence, prefix_probabilities: list[float], minimum: float
    ) -> list[tuple[float, _GuessPath]]:
        """Branches that could be started now, with their probabilities."""
        taken = {(branch.start, branch.drafted[0][0].token) for branch in sequence.branches}
        main = sequence.main
        candidates = []
        right = True
        for i, guesses in enumerate(main.drafted[: self._n_ahead - 1]):
            start = main.start + i
            for runner_up in guesses[1:]:
                if (probability := prefix_probabilities[i] * runner_up.confidence) < minimum:
                    break
                if (start, runner_up.token) not in taken and start + 1 < sequence.text.n_tokens:
                    is_right = right and runner_up.token == Text.token(start)
                    candidates.append((probability, _GuessPath(start, [(runner_up,)], is_right)))
            right = right and guesses[0].token == Text.token(start)
        return candidates

    # What to send

    def _flush(self) -> None:
        for sequence in list(self._unsent):
            self._send(sequence)
        self._flushed_at = self._clock.now

    def _send(self, sequence: str) -> None:
        self._unsent.pop(sequence, None)
        state = self._sequences.get(sequence)
        if not state or not state.main.drafted:
            return
        drafted = [guesses[0] for guesses in state.main.drafted]
        parents = list(range(-1, len(drafted) - 1))
        for branch in state.branches:
            part = [guesses[0] for guesses in branch.drafted[: _MAX_TOKENS - len(drafted)]]
            if len(part) > 1:
                first = branch.start - state.main.start - 1
                parents += [first, *range(len(drafted), len(drafted) + len(part) - 1)]
                drafted += part
        self._post(
            PostDraft(
                sequence=sequence,
                source=self.name,
                base=state.n_committed,
                tokens=[guess.token for guess in drafted],
                parents=parents if len(drafted) > len(state.main.drafted) else None,
                confidences=[round(guess.confidence, 4) for guess in drafted],
            )
        )
