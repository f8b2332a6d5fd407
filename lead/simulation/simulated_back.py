"""A simulated back: drafts for the sequences of the lead as `back/` does, in simulated time.

It drafts the main paths first, then side branches, best first, when the main paths are long enough. Updates
that arrive during a decode are applied after it. It may have several leads, as `back.worker` does.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from lead.engine.commands import PostDraft
from lead.engine.events import Tuned
from lead.simulation.clock import Compute, VirtualClock
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


class Valued(NamedTuple):
    """What a lead says a draft token is worth to it, as `shared.protocol.Tune` does."""

    value: float


SimulatedUpdate = Opened | Extended | Closed | Tuned | Valued


class LeadDivision(Protocol):
    """How a back divides its time among its leads, numbered from 0: `back.lead_shares.LeadShares`."""

    def choose(self, waiting: Collection[int]) -> set[int]:
        """Which of the leads with work are served next."""

    def charge(self, n_tokens: Mapping[int, int], seconds: float) -> None:
        """A decode took `seconds` for so many tokens of each lead."""

    def claim(self, lead: int, value: float | None) -> None:
        """A lead says what a draft token is worth to it."""

    def learn(self, lead: int, n_right: int, n_wrong: int) -> None:
        """So many draft tokens were committed, and in the place of so many others were."""


class _Tuning(NamedTuple):
    """What a lead wants to have drafted."""

    n_ahead: int = _MAX_AHEAD
    min_confidence: float = 0.0

    @property
    def n_at_once(self) -> int:
        return max(1, self.n_ahead // 2)


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

    def __init__(self, opened: Opened, lead: int) -> None:
        self.id = opened.sequence
        self.lead = lead
        self.text = opened.text
        self.n_committed = opened.n_committed
        self.main = _GuessPath(opened.n_committed)
        self.branches: list[_GuessPath] = []

    def advance(self, n_committed: int) -> tuple[int, int]:
        """Keep what agrees with the committed tokens; a branch that agrees better becomes the main path.

        Returns how many tokens of the main path were committed, and in the place of how many others were.
        """
        before, self.n_committed = self.n_committed, n_committed
        n_right, n_drafted = self.main.n_agreeing(n_committed), len(self.main.drafted)
        end = self.main.start + n_right
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
        return n_right, int(n_right < min(n_committed - before, n_drafted))


class SimulatedBack:
    """One back. `receive` is called with each update that arrives, `post` with each draft."""

    def __init__(
        self,
        name: str,
        spec: BackSpec,
        clock: VirtualClock,
        post: Callable[[PostDraft], None],
        *,
        compute: Compute | None = None,
        shares: LeadDivision | None = None,
    ) -> None:
        """compute: of a machine that it shares; None: it has one of its own. shares: among several leads."""
        self.name = name
        self.n_drafted = 0
        self.busy_seconds = 0.0
        self._compute = compute or clock.after
        self._shares = shares
        self._spec = spec
        self._clock = clock
        self._post = post
        self._inbox: list[tuple[int, SimulatedUpdate]] = []
        self._busy = False
        self._chosen: list[tuple[_BackSequence, _GuessPath]] | None = (
            None  # for the next step, if no updates arrive
        )
        self._sequences: dict[str, _BackSequence] = {}
        self._tuning: defaultdict[int, _Tuning] = defaultdict(_Tuning)
        self._unsent: dict[str, None] = {}  # an ordered set
        self._flushed_at = -math.inf
        self._rng = random.Random(name)  # noqa: S311 - jitter

    def receive(self, update: SimulatedUpdate, lead: int = 0) -> None:
        """Handle an update from a lead: at once, or after the decode under way."""
        self._inbox.append((lead, update))
        if not self._busy:
            self._start_step()

    def _start_step(self) -> None:
        """Apply the updates, then decode."""
        if self._inbox:
            for lead, update in self._inbox:
                self._apply(lead, update)
            self._inbox.clear()
            self._flush()
            self._chosen = None
        paths = self._chosen if self._chosen is not None else self._choose()
        self._chosen = None
        self._busy = bool(paths) and self._clock.now < self._spec.silent_from
        if self._busy:
            n = sum(path.n_to_decode for _, path in paths)
            began = self._clock.now
            self._compute(self._decode_seconds(n), lambda: self._finish_step(paths, self._clock.now - began))

    def _decode_seconds(self, n_tokens: int) -> float:
        seconds = self._spec.step_s * (1 + self._spec.slope * (n_tokens - 1))
        if self._spec.jitter:
            seconds *= max(0.2, self._rng.gauss(1.0, self._spec.jitter))
        return seconds

    def _finish_step(self, paths: list[tuple[_BackSequence, _GuessPath]], seconds: float) -> None:
        self._charge(paths, seconds)
        for sequence, path in paths:
            guess = sequence.text.guesses if path.right else sequence.text.astray
            path.append(guess(self._spec.skill, path.end))
            self._unsent[sequence.id] = None
            if path is sequence.main and len(path.drafted) <= self._tuning[sequence.lead].n_at_once:
                self._send(sequence.id)
        self._chosen = self._choose()
        if not self._chosen or self._clock.now - self._flushed_at >= _SEND_INTERVAL_S:
            self._flush()
        self._start_step()

    def _charge(self, paths: list[tuple[_BackSequence, _GuessPath]], seconds: float) -> None:
        self.n_drafted += len(paths)
        self.busy_seconds += seconds
        if self._shares:
            n_tokens: defaultdict[int, int] = defaultdict(int)
            for sequence, path in paths:
                n_tokens[sequence.lead] += path.n_to_decode
            self._shares.charge(n_tokens, seconds)

    def _apply(self, lead: int, update: SimulatedUpdate) -> None:
        match update:
            case Opened():
                self._sequences[update.sequence] = _BackSequence(update, lead)
            case Extended():
                if sequence := self._sequences.get(update.sequence):
                    n_right, n_wrong = sequence.advance(update.n_committed)
                    if self._shares:
                        self._shares.learn(lead, n_right, n_wrong)
            case Closed():
                self._sequences.pop(update.sequence, None)
                self._unsent.pop(update.sequence, None)
            case Tuned():
                self._tuning[lead] = _Tuning(min(_MAX_AHEAD, update.n_ahead), update.min_confidence)
            case Valued():
                if self._shares:
                    self._shares.claim(lead, update.value)

    # What to decode

    def _choose(self) -> list[tuple[_BackSequence, _GuessPath]]:
        paths = self._choose_among(list(self._sequences.values()))
        if self._shares is None:
            return paths
        waiting = {sequence.lead for sequence, _ in paths}
        served = self._shares.choose(waiting)
        if served == waiting:
            return paths
        return self._choose_among([each for each in self._sequences.values() if each.lead in served])

    def _choose_among(self, sequences: list[_BackSequence]) -> list[tuple[_BackSequence, _GuessPath]]:
        drafting = [each for each in sequences if self._wants_main(each)]
        paths = [(each, each.main) for each in drafting]
        if not any(len(each.main.drafted) < self._tuning[each.lead].n_at_once for each in drafting):
            for sequence in sequences:
                n = _N_BESIDE_MAIN if sequence in drafting else self._spec.n_branches
                paths += [(sequence, path) for path in self._choose_branches(sequence, n)]
        return paths

    def _wants_main(self, sequence: _BackSequence) -> bool:
        main, tuning = sequence.main, self._tuning[sequence.lead]
        return (
            len(main.drafted) < tuning.n_ahead
            and main.end < sequence.text.n_tokens
            and main.confidence >= tuning.min_confidence
        )

    def _choose_branches(self, sequence: _BackSequence, n: int) -> list[_GuessPath]:
        """At most `n` branches to continue or to start, best first; new ones are started here."""
        if self._spec.n_branches == 0:
            return []
        prefix_probabilities = [1.0]
        for guesses in sequence.main.drafted:
            prefix_probabilities.append(prefix_probabilities[-1] * guesses[0].confidence)
        start, tuning = sequence.main.start, self._tuning[sequence.lead]
        continued = [
            (prefix_probabilities[branch.start - start] * branch.confidence, branch)
            for branch in sequence.branches
            if len(branch.drafted) < _BRANCH_TOKENS
            and branch.end < min(start + tuning.n_ahead, sequence.text.n_tokens)
        ]
        minimum = max(_MIN_BRANCH_PROBABILITY, tuning.min_confidence / 2)
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
        for i, guesses in enumerate(main.drafted[: self._tuning[sequence.lead].n_ahead - 1]):
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
