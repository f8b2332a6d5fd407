"""The engine of a lead, and the front's client of it, in this process: both ends of the pipe.

The model's choice depends on the position alone, so every text is known before.
"""

from collections.abc import Callable
from typing import Any

from bench.replay import ReplayTarget, Rows, Shares
from lead.engine.commands import (
    Cancel,
    Command,
    PolicyName,
    SetBacks,
    SetPolicy,
    Submit,
    decode_command,
)
from lead.engine.drafters.lookup import NgramDrafter
from lead.engine.engine import Engine
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Event, Ready, decode_event, encode_line
from lead.engine.loop import Loop
from lead.engine.speculation.manager import SpeculationManager
from lead.generation.engine_state import EngineState
from lead.generation.sequences import LiveSequence, Sequences
from shared.protocol import Draft
from shared.sampling.sampler import Sampler

N_SLOTS, N_CTX = 4, 1024


class ManualClock:
    """Seconds that pass only when they are told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class LocalEngine:
    """A loop that is stepped by hand; events go through `deliver`."""

    def __init__(self, n_vocab: int, clock: ManualClock, sequences: Sequences) -> None:
        self.rows = Rows(n_vocab, seed=0)
        self.state = EngineState.READY
        self.ready: Ready | None = Ready(n_ctx=N_CTX, n_ctx_sequence=N_CTX, n_slots=N_SLOTS, speculates=True)
        self.open = True
        self.deliver: Callable[[Event], None] = lambda _: None
        self._commands: list[bytes] = []
        self._sequences = sequences
        self._clock = clock
        limits = EngineLimits(n_slots=N_SLOTS, n_ctx=N_CTX, n_ctx_sequence=N_CTX, n_batch=256)
        speculation = SpeculationManager("adaptive", 4, frozenset(), lambda _: {"ngram": NgramDrafter(8)})
        self.engine = Engine(limits, speculation, self._sampler_for, frozenset())
        target = ReplayTarget(self.rows, n_vocab, 256, Shares())
        self._loop = Loop(target, self.engine, self, clock)

    def step(self) -> None:
        """One step of the loop, unless it would wait for a command."""
        if self._commands or not self.engine.idle:
            self._loop.step()

    # What the loop sees

    def drain(self, wait: float | None) -> list[Command]:
        """All commands; time passes while the loop waits."""
        if wait and not self._commands:
            self._clock.now += wait
        lines, self._commands = self._commands, []
        return [decode_command(line) for line in lines]

    def send(self, *events: Event) -> None:
        """Through the format of the pipe."""
        for event in events:
            self.deliver(decode_event(encode_line(event)))

    # What the front sees

    def submit(self, request: Submit, *, private: bool = False) -> None:
        """Continue a prompt."""
        self._sequences.create(request, private=private)
        self._commands += [encode_line(each) for each in self._sequences.take_due()]

    def cancel(self, sequence: LiveSequence) -> None:
        """Stop a sequence."""
        self._sequences.discard(sequence)
        self._commands.append(encode_line(Cancel(sequence=sequence.id)))

    def post_draft(self, draft: Draft) -> None:
        """Pass a draft on."""
        self._commands.append(encode_line(draft))

    def connect(self, backs: SetBacks) -> None:
        """Set the connected backs."""
        self._commands.append(encode_line(backs))

    def set_policy(self, policy: PolicyName, depth: int) -> None:
        """Change the policy."""
        self._commands.append(encode_line(SetPolicy(policy=policy, depth=depth)))

    async def explain(self) -> dict[str, Any] | None:
        """Nothing."""
        return None

    def _sampler_for(self, request: Submit) -> Sampler:
        return Sampler(request.sampling, None, request.tokens)
