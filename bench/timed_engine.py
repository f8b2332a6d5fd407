"""The engine's loop with a real model, in real time, with backs that are simulated.

What the lead does takes the time that it takes: decoding, heads, planning, commands and events. The texts are
known beforehand, so that heads and backs can be right as often as asked. A back is on a machine of its own:
what it drafts, and when, is simulated, and takes no time here.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.guessing_sampler import GuessingSampler, NamedText
from lead.engine.calibration import StepTimer
from lead.engine.commands import (
    Command,
    PolicyName,
    SetBacks,
    Submit,
    decode_command,
)
from lead.engine.engine import Engine
from lead.engine.events import Committed, Event, Finished, encode_line
from lead.engine.loop import Loop
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.memory_batching import batching_for
from lead.engine.target_loading import limits_of
from lead.heads.inline_source import InlineMtp
from lead.heads.mtp_drafter import MtpDrafter
from lead.simulation.clock import Link, VirtualClock
from lead.simulation.simulated_back import GREEDY, BackSpec, SimulatedBack
from lead.simulation.simulated_lead import TextSampler
from lead.simulation.text import DraftSkill, Text
from shared.drafting.drafter import DrafterMessage
from shared.llama.model import Model
from shared.protocol import Close, Draft, Extend, Open, Tune
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler
from shared.step_cost import StepCost

_NO_TOKEN_ENDS = frozenset[int]()
_BEYOND = 32
"""Tokens of a text behind what is asked for, for drafts that go on."""


@dataclass(frozen=True, slots=True)
class DraftingParts:
    """What drafts for the target: its heads, with this acceptance, and backs."""

    heads: DraftSkill | None = None
    backs: tuple[BackSpec, ...] = ()


class Stopwatch:
    """Seconds, without those in which it stood still; it stands still at first."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._passed = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        return self._passed if self._since is None else self._passed + self._clock() - self._since

    @contextmanager
    def running(self) -> Iterator[None]:
        """It runs within."""
        self._since = self._clock()
        try:
            yield
        finally:
            self._passed = self()
            self._since = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Within `running`: it stands still."""
        self._passed = self()
        self._since = None
        try:
            yield
        finally:
            self._since = self._clock()


class TimedEngine:
    """Writes one text after the other. Several may take turns with one model."""

    open = True

    def __init__(self, model: Model, heads: InlineMtp | None, parts: DraftingParts, n_most: int = 16) -> None:
        """`heads` of the model are needed if they are to draft, up to `n_most` tokens."""
        self._model, self._heads = model, heads if parts.heads else None
        self._skill = parts.heads
        self._watch = Stopwatch()
        self._clock = VirtualClock()
        self._texts: dict[int, NamedText] = {}
        self._simulated: dict[int, Text] = {}
        self._commands: list[bytes] = []
        self._ended = False
        self._n_committed = 0
        policy: PolicyName = "adaptive" if parts.heads or parts.backs else "off"
        limits = limits_of(model)
        self._speculation = SpeculationManager(
            policy,
            0,
            _NO_TOKEN_ENDS,
            batching=batching_for(limits, StepCost(settles=model.is_offloaded)),
            inline=self._drafter(heads, n_most) if heads and parts.heads else None,
        )
        self._engine = Engine(limits, self._speculation, self._sampler, _NO_TOKEN_ENDS)
        self._loop = Loop(model, self._engine, self, self._watch)
        self._links = [self._connect(f"back-{i}", spec) for i, spec in enumerate(parts.backs)]
        names = [f"back-{i}" for i in range(len(parts.backs))]
        self._commands.append(encode_line(SetBacks(names=names)))

    def calibrate(self) -> None:
        """Measure T(n) like a lead that starts."""
        self._clear()
        StepTimer.of_target(self._model, self._model.n_vocab).calibrate(self._speculation.cost)
        if self._heads and self._speculation.inline:
            self._heads.calibrate(self._speculation.inline.cost)

    def write(self, number: int, n_tokens: int) -> float:
        """Tokens per second after the first of a text's `n_tokens` tokens; equal numbers: equal texts."""
        self._clear()
        self._texts = {number: NamedText(n_tokens + _BEYOND, number, self._model.n_vocab)}
        self._submit(number, n_tokens)
        with self._watch.running():
            while not self._n_committed:
                self._loop.step()
            n_first, began = self._n_committed, self._watch()
            while not self._ended:
                self._loop.step()
        return (n_tokens - n_first) / (self._watch() - began)

    def describe(self) -> dict[str, Any]:
        """What was learned and done, as in `GET /v1/speculation`."""
        return self._speculation.describe()

    # What the loop sees

    def send(self, *events: Event) -> None:
        """Through the format of the pipe; backs hear of them."""
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        encode_line(event)
        self._let_backs_work()
        with self._watch.stopped():
            match event:
                case Committed():
                    self._n_committed += len(event.tokens)
                    end = event.start + len(event.tokens)
                    tokens = [Text.token(position) for position in range(event.start, end)]
                    self._tell(Extend(sequence=event.sequence, start=event.start, tokens=tokens))
                case Finished():
                    self._ended = True
                    self._tell(Close(sequence=event.sequence, reason="ended"))
                case Tune():
                    self._tell(event)
                case _:
                    pass

    def drain(self, wait: float | None) -> list[Command]:
        """What backs have sent meanwhile; waits for something at most `wait` seconds."""
        self._let_backs_work()
        if wait and not self._commands:
            self._wait_until(self._watch() + wait)
        lines, self._commands = self._commands, []
        return [decode_command(line) for line in lines]

    def _wait_until(self, end: float) -> None:
        while not self._commands and (seconds := min(end, self._clock.next_at) - self._watch()) > 0:
            time.sleep(seconds)
            self._let_backs_work()

    def _let_backs_work(self) -> None:
        with self._watch.stopped():
            self._clock.pass_until(self._watch())

    # The drafters

    def _drafter(self, heads: InlineMtp, n_most: int) -> MtpDrafter:
        return MtpDrafter(heads.heads, heads.states, self._guessing, _NO_TOKEN_ENDS, n_most=n_most)

    def _guessing(
        self, sampling: SamplingParameters, history: list[int], _like: Sampler | None = None, /
    ) -> Sampler:
        assert self._skill
        assert sampling.seed is not None
        return GuessingSampler(self._texts[sampling.seed], self._skill, history)

    def _sampler(self, request: Submit) -> Sampler:
        return TextSampler(self._texts[int(request.sequence)].tokens.__getitem__)

    def _connect(self, name: str, spec: BackSpec) -> Link[DrafterMessage]:
        drafts = Link(self._clock, spec.rtt_s / 2, spec.message_s, self._post)
        back = SimulatedBack(name, spec, self._clock, drafts.send, self._simulated)
        return Link(self._clock, spec.rtt_s / 2, spec.message_s, back.receive)

    def _post(self, draft: Draft) -> None:
        """A draft has arrived at the lead."""
        if text := self._texts.get(int(draft.sequence)):
            tokens = [text.name(token) for token in draft.tokens]
            arrived = draft.model_copy(update={"tokens": tokens, "received_at": self._clock.now})
            self._commands.append(encode_line(arrived))

    def _tell(self, message: DrafterMessage) -> None:
        for link in self._links:
            link.send(message)

    def _submit(self, number: int, n_tokens: int) -> None:
        text = self._texts[number]
        request = Submit(
            sequence=str(number),
            tokens=text.tokens[:1],
            sampling=GREEDY.model_copy(update={"seed": number}),
            max_tokens=n_tokens,
            cache_prompt=False,
        )
        self._commands.append(encode_line(request))
        self._n_committed, self._ended = 0, False
        self._simulated[number] = text.simulated
        self._tell(Open(sequence=request.sequence, sampling=GREEDY, tokens=[number]))

    def _clear(self) -> None:
        """Another engine may have used the model."""
        self._model.trim(0, 0)
        if self._heads:
            self._heads.heads.trim(0, 0)
