"""A simulated back: the real drafter with a model that guesses known texts, in simulated time.

The same drafter, called by the engine, simulates a draft model inside the lead.
"""

import functools
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lab.simulation.clock import Compute, VirtualClock
from lab.simulation.text import DraftSkill, Text
from lead.engine.commands import DRAFT_MODEL
from lead.engine.drafters.model_drafter import ModelDrafter
from shared.cache_edits import SlotMemory
from shared.drafting.drafter import Drafter, DrafterMessage
from shared.drafting.drafter_options import DrafterOptions
from shared.errors import DecodeAbortedError
from shared.llama.memory_traits import PLAIN
from shared.llama.span import Span
from shared.protocol import Draft
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import RankedToken, Sampler

GREEDY = SamplingParameters(seed=0, temperature=0)
_MAX_AHEAD = 16
_N_WINDOW = 1 << 40
_N_VOCAB = 1 << 31
_END = _N_VOCAB - 1
"""The end token, which a draft model knows to follow a text."""


@dataclass(frozen=True, slots=True)
class BackSpec:
    """A back: a decode of n tokens takes step_s * (1 + slope * (n - 1)); rtt_s is the round-trip time.

    The back sends nothing after `silent_from` (seconds of simulated time). can_interrupt: it interrupts
    decodes that have become useless, as backs on a CPU do.
    """

    step_s: float
    rtt_s: float = 0.0
    skill: DraftSkill = field(default_factory=lambda: DraftSkill(0.75))
    slope: float = 0.15
    message_s: float = 0.0003
    n_branches: int = 16
    silent_from: float = math.inf
    can_interrupt: bool = True

    def seconds(self, n_tokens: int) -> float:
        return self.step_s * (1 + self.slope * (n_tokens - 1))


class GuessingModel(SlotMemory):
    """A draft model for known texts. The first token of a sequence is its text's key in `texts`.

    The logits for a position, shape (2,), are this key and whether all tokens before the position are right;
    `GuessingSampler` chooses tokens by them.
    """

    n_batch, n_vocab, traits = 512, _N_VOCAB, PLAIN

    def __init__(self) -> None:
        self._slots: dict[int, tuple[int, int]] = {}  # key of the text, number of tokens that are the text's
        self.interrupt = threading.Event()

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        if self.interrupt.is_set():
            raise DecodeAbortedError
        return [self._read(span) for span in spans]

    def trim(self, slot: int, n_keep: int) -> None:
        """Do nothing: the positions of the next decode say which tokens it replaces."""

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        del n_keep  # as for `trim`
        self._slots[slot] = self._slots[source_slot]

    def _read(self, span: Span) -> NDArray[np.float32]:
        key, n_right = self._slots[span.slot] if span.start else (span.tokens[0], 1)
        end = span.start + len(span.tokens)
        if n_right >= span.start:
            n_right = max(1, span.start)
            while n_right < end and span.tokens[n_right - span.start] == Text.token(n_right):
                n_right += 1
        self._slots[span.slot] = key, n_right
        return np.array([[key, n_right == end]] * span.n_logits, np.float32)


class GuessingSampler(Sampler):
    """Chooses tokens as a draft model of this skill would, from the logits of a `GuessingModel`."""

    def __init__(self, skill: DraftSkill, texts: Mapping[int, Text]) -> None:
        super().__init__(GREEDY, None, [])
        self._skill = skill
        self._texts = texts

    def rank(self, logits: NDArray[np.float32], position: int, n: int) -> list[RankedToken]:
        text = self._texts[int(logits[0])]
        if position >= text.n_tokens:
            return [RankedToken(_END, 1.0)]
        guesses = text.guesses if logits[1] else text.astray
        return list(guesses(self._skill, position)[:n])


def _drafter(
    skill: DraftSkill, texts: Mapping[int, Text], n_slots: int, n_branches: int, *, can_interrupt: bool
) -> Drafter:
    model, sampler = GuessingModel(), GuessingSampler(skill, texts)
    options = DrafterOptions(n_slots, _N_WINDOW, _MAX_AHEAD, n_branches=n_branches)
    interrupt = model.interrupt if can_interrupt else None
    return Drafter(model, options, lambda *_: sampler, frozenset([_END]), interrupt=interrupt)


def simulated_draft_model(spec: BackSpec, texts: Mapping[int, Text], n_slots: int) -> ModelDrafter:
    """Return a draft model inside the lead's engine; a decode takes `spec.seconds`."""
    return ModelDrafter(DRAFT_MODEL, _drafter(spec.skill, texts, n_slots, 0, can_interrupt=False), _MAX_AHEAD)


class SimulatedBack:
    """A simulated back. Call `receive` with each arriving message; it calls `post` with each draft."""

    def __init__(
        self,
        name: str,
        spec: BackSpec,
        clock: VirtualClock,
        post: Callable[[Draft], None],
        texts: Mapping[int, Text],
        *,
        n_slots: int = 1,
        compute: Compute | None = None,
    ) -> None:
        """texts: each under the first token of its sequence; `n_slots` sequences are open at a time.

        compute: computes on a shared machine; None: the back has its own machine.
        """
        self._name = name
        self._spec = spec
        self._clock = clock
        self._post = post
        self._compute = compute or clock.after
        can_interrupt = spec.can_interrupt and compute is None
        self._drafter = _drafter(spec.skill, texts, n_slots, spec.n_branches, can_interrupt=can_interrupt)
        self._inbox: list[DrafterMessage] = []
        self._is_busy, self._began = False, 0.0
        self._n_steps = 0

    def receive(self, message: DrafterMessage) -> None:
        """Handle a message of the lead: at once, or after the current decode."""
        self._inbox.append(message)
        if not self._is_busy:
            self._step()
        elif self._drafter.interrupt(message):
            self._finish_step(self._n_steps)

    def _step(self) -> None:
        """Do a step as `back.worker.DraftWorker.step` does, with a decode that takes simulated time."""
        if self._inbox:
            for message in self._inbox:
                self._drafter.handle(message)
            self._inbox.clear()
            self._send(self._drafter.take_due(self._clock.now, at_once=True))
        if self._clock.now >= self._spec.silent_from:
            return
        self._drafter.begin()
        if n_decoded := self._drafter.n_decoded.total():
            self._is_busy, self._began = True, self._clock.now
            self._n_steps += 1
            self._compute(self._spec.seconds(n_decoded), functools.partial(self._finish_step, self._n_steps))

    def _finish_step(self, number: int) -> None:
        """End step `number`, unless it was interrupted."""
        if not self._is_busy or number != self._n_steps:
            return
        self._is_busy = False
        self._drafter.finish()
        self._drafter.learn(self._clock.now - self._began)
        self._send(self._drafter.take_due(self._clock.now))
        if self._inbox or not self._drafter.idle:
            self._step()

    def _send(self, drafts: Iterable[tuple[int, Draft]]) -> None:
        for _, draft in drafts:
            self._post(draft.model_copy(update={"source": self._name}))
