"""The other end of an engine's pipe, where random clients and backs do everything that they can do.

Clients send requests with common beginnings, second turns, repetitions, and questions of one token that
differ
in their ends. There are more requests than slots, a few, or none for a while. Clients leave at any moment,
above all while a plan waits for drafts. Backs send drafts that are half right, or are silent. The policy
changes.
"""

import random
from dataclasses import dataclass
from typing import get_args

from lead.engine.commands import Cancel, Command, PolicyName, SetBacks, SetPolicy, Submit
from lead.engine.events import Committed, Event, Failed, Finished, Started
from shared.image_span import without_images
from shared.protocol import Draft
from shared.sampling.parameters import SamplingParameters
from tests.random_images import RandomImages, cut, ends_with_a_token

DEPTH = 6
_TICK = 0.001
"""The time of each look at the clock, and so of each step: the policy must not depend on the machine."""
_CHANGES = 0.02
"""The probability that clients and backs change their habits, for each look at the pipe."""
_LEAVING = (0.0, 0.01, 0.04)
"""The probability that a client leaves, for each look at the pipe."""
_LEAVING_EARLY = 0.12
"""The same while the engine waits for drafts, and before the first token of an answer."""
_ASKING = (0.1, 0.6)
"""The share of requests that want one token."""
_MAX_SILENT_LOOKS = 1000
_SOURCES = ("half-right", "silent")


@dataclass(frozen=True, slots=True)
class Habits:
    """The properties of requests.

    endless: the share of requests that go on to `n_max`, prompt and answer together. n_at_once: the most
    requests
    at the same time.
    """

    n_vocab: int
    n_ctx: int
    n_max: int
    n_at_once: int
    endless: float
    n_keep: int | None


class RandomClients:
    """A pipe, and its clock. Raises AssertionError if a request is forgotten.

    Its requests are the same for the same `rng` and the same events.
    """

    open = True

    def __init__(self, habits: Habits, rng: random.Random, images: RandomImages | None = None) -> None:
        self._habits = habits
        self._images = images or RandomImages(rng)
        self._random = rng
        self.scripts: list[list[int]] = []
        """The text of each request, with its prompt and without images, by the seed of its sampling."""
        self._running: dict[str, list[int]] = {}  # committed tokens
        self._unanswered: set[str] = set()  # have started
        self._past = [self._images.put_into(self.tokens(rng.randint(20, 150))) for _ in range(3)]
        self._n_wanted, self._is_silent = habits.n_at_once, False
        self._leaving, self._asking = _LEAVING[1], _ASKING[0]
        self._now = 0.0
        self._n_silent_looks = 0
        self.n_beyond = 0
        """The number of steps of texts longer than the context."""

    def clock(self) -> float:
        """Return the time, which passes with every look at it."""
        self._now += _TICK
        return self._now

    def tokens(self, n: int) -> list[int]:
        """Random tokens."""
        return [self._random.randrange(self._habits.n_vocab) for _ in range(n)]

    # The pipe

    def drain(self, wait: float | None) -> list[Command]:
        """Return some commands, none before `wait` is over, or a task if nothing else would come."""
        assert wait is not None or not self._running, f"forgotten: {list(self._running)}"
        self._n_silent_looks += 1
        assert self._n_silent_looks < _MAX_SILENT_LOOKS, f"no answers any more: {list(self._running)}"
        commands = [*self._change(wait), *self._draft(), *self._leave(wait), *self._arrive()]
        if wait:
            self._now += wait / 2 if commands else wait
        return commands

    def send(self, *events: Event) -> None:
        """Take events of the engine."""
        self._n_silent_looks = 0
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case Started():
                self._unanswered.add(event.sequence)
            case Committed():
                self._unanswered.discard(event.sequence)
                self._running[event.sequence] += event.tokens
                self.n_beyond += event.start >= self._habits.n_ctx
            case Finished():
                self._end(event.sequence)
            case Failed():
                raise AssertionError(event.reason)

    def leave(self) -> list[Cancel]:
        """Let all clients leave."""
        gone = list(self._running)
        for sequence in gone:
            self._end(sequence)
        return [Cancel(sequence=sequence) for sequence in gone]

    # What clients and backs do

    def _change(self, wait: float | None) -> list[Command]:
        if wait is not None and self._random.random() > _CHANGES:
            return []
        self._n_wanted = self._random.randint(wait is None, self._habits.n_at_once)
        self._leaving, self._asking = self._random.choice(_LEAVING), self._random.choice(_ASKING)
        self._is_silent = self._random.random() < 0.3
        policy: PolicyName = self._random.choice(get_args(PolicyName))
        return [
            SetBacks(names=list(_SOURCES[: self._random.randint(1, 2)])),
            SetPolicy(policy=policy, depth=self._random.randint(1, DEPTH)),
        ]

    def _draft(self) -> list[Command]:
        """The true next tokens. In three of five drafts one token is wrong."""
        drafts: list[Command] = []
        for sequence, text in self._running.items():
            if self._is_silent or self._random.random() < 0.3:
                continue
            base = len(without_images(text))
            tokens = self._script(sequence)[base : base + self._random.randint(1, DEPTH)]
            if tokens and self._random.random() < 0.6:
                tokens[self._random.randrange(len(tokens))] = self.tokens(1)[0]
            if tokens:
                draft = Draft(sequence=sequence, source=_SOURCES[0], base=base, tokens=tokens)
                drafts.append(draft.model_copy(update={"received_at": self._now}))
        return drafts

    def _leave(self, wait: float | None) -> list[Command]:
        gone = []
        for sequence in self._running:
            is_early = bool(wait) or sequence in self._unanswered
            if self._random.random() < (_LEAVING_EARLY if is_early else self._leaving):
                gone.append(sequence)
        for sequence in gone:
            self._end(sequence)
        return [Cancel(sequence=sequence) for sequence in gone]

    def _arrive(self) -> list[Command]:
        return [self._submit() for _ in range(self._n_wanted - len(self._running))]

    def _submit(self) -> Submit:
        number, habits = len(self.scripts), self._habits
        is_short = self._random.random() < self._asking
        prompt = self._images.exchanged(self._question() if is_short else self._prompt())
        prompt = ends_with_a_token(cut(prompt, habits.n_ctx - 2))
        endless = self._random.random() < habits.endless
        max_tokens = habits.n_max - len(prompt) if endless else self._random.randint(1, 60)
        self.scripts.append([*without_images(prompt), *self.tokens(habits.n_max + 1 - len(prompt))])
        self._running[f"s{number}"] = list(prompt)
        return Submit(
            sequence=f"s{number}",
            tokens=prompt,
            images=self._images.spans(prompt),
            sampling=SamplingParameters(temperature=0.0, seed=number),
            max_tokens=1 if is_short else max_tokens,
            n_keep=habits.n_keep,
            cache_prompt=self._random.random() > 0.05,
            keep_for="all",
        )

    def _question(self) -> list[int]:
        """One of a few questions, with a random end."""
        return [*self._random.choice(self._past[:3]), *self.tokens(self._random.randint(1, 3))]

    def _prompt(self) -> list[int]:
        """A new prompt, or a second turn, a repetition, or a branch of a text that is or was served."""
        before = self._random.choice([*self._past, *self._running.values()])
        match self._random.randrange(4):
            case 0:
                return self._images.put_into(self.tokens(self._random.randint(2, 200)))
            case 1:
                return [*before, *self._images.put_into(self.tokens(self._random.randint(1, 60)))]
            case 2:
                return list(before)
            case _:
                kept = cut(before, self._random.randint(1, len(before)))
                return [*kept, *self.tokens(self._random.randint(1, 60))]

    def _script(self, sequence: str) -> list[int]:
        return self.scripts[int(sequence[1:])]

    def _end(self, sequence: str) -> None:
        self._past.append(self._running.pop(sequence))
        self._unanswered.discard(sequence)
        del self._past[3:-20]  # the common beginnings stay
