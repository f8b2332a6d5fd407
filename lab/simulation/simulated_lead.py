"""A simulated lead: the real engine; only decoding and time are simulated."""

import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lab.simulation.clock import Compute, VirtualClock
from lab.simulation.machine import HOST, HostTime, StepTable
from lab.simulation.simulated_back import GREEDY, BackSpec, simulated_draft_model
from lab.simulation.text import Text
from lead.engine.calibration import BATCH_SIZES
from lead.engine.commands import PolicyName, SetBacks, Submit
from lead.engine.engine import Engine
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Committed, Finished
from lead.engine.scheduler import StepPlan
from lead.engine.speculation.batching import LikeliestFirst
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.speculation.policy import DraftOrder, Wait
from lead.engine.speculation.speculation_stats import SpeculationStats
from lead.engine.speculation.widths import Widths
from shared.protocol import Draft, Tune
from shared.sampling.sampler import Sampler
from shared.step_cost import StepCost

_JITTER = 0.02
"""Standard deviation of a step's time, relative to T(n)."""
_NO_TOKEN_ENDS = frozenset[int]()
_N_CTX = 1 << 40
_CALIBRATION_ROUNDS = 5

LeadEvent = Committed | Finished | Tune
EventObserver = Callable[[LeadEvent], None]


class TextSampler(Sampler):
    """A sampler for known texts, which needs no logits."""

    def __init__(self, token_at: Callable[[int], int]) -> None:
        """token_at: returns the token at a position of the sequence."""
        super().__init__(GREEDY, None, [])
        self._token_at = token_at

    def choose(self, _logits: NDArray[np.float32], position: int) -> int:
        return self._token_at(position)


class SimulatedLead:
    """Serves sequences of known texts. observer: called with every event at its time."""

    def __init__(
        self,
        clock: VirtualClock,
        steps: StepTable,
        observer: EventObserver,
        texts: Mapping[int, Text],
        *,
        policy: PolicyName,
        seed: int = 0,
        constants: SpeculationConstants = DEFAULTS,
        inline: BackSpec | None = None,
        compute: Compute | None = None,
        host: HostTime = HOST,
    ) -> None:
        """texts: each under the first token of its sequence. inline: a draft model in the engine, whose round
        trip is ignored.

        compute: computes on a shared machine; None: the lead has its own machine. host: the engine's own time
        after each step.
        """
        self._clock, self._observer, self._texts = clock, observer, texts
        self._steps, self._inline, self._host = steps, inline, host
        self._compute = compute or clock.after
        self._inbox: list[Draft] = []  # drafts that arrive during a step
        self._rng = random.Random(seed)  # noqa: S311 - jitter
        self._busy = False  # a step is in progress
        self._n_backs = 0  # connected
        self._n_turns = 0  # of the loop; a wait that ends after another turn does nothing
        self._size, self._n_of_size = 0, 0  # of the last steps
        cost = StepCost(constants, settles=bool(steps.settling))
        self._speculation = SpeculationManager(
            policy,
            0,
            _NO_TOKEN_ENDS,
            lambda _: {},
            batching=LikeliestFirst(cost, Widths(cost, constants, pads=True)),
            constants=constants,
            inline=simulated_draft_model(inline, texts, n_slots=1) if inline else None,
        )
        self._calibrate()
        limits = EngineLimits(n_slots=1, n_ctx=_N_CTX, n_ctx_sequence=_N_CTX, n_batch=512)
        self._engine = Engine(limits, self._speculation, self._sampler_for, _NO_TOKEN_ENDS)

    def _sampler_for(self, request: Submit) -> TextSampler:
        return TextSampler(self._texts[request.tokens[0]].token)

    def _calibrate(self) -> None:
        """Teach the planner the times that an engine measures when it starts."""
        if self._inline and self._speculation.inline:
            self._speculation.inline.cost.learn_table({n: self._inline.seconds(n) for n in range(1, 9)})
        sizes = _CALIBRATION_ROUNDS * BATCH_SIZES
        self._speculation.cost.learn_sweeps((n, self._steps.seconds(n)) for n in sizes)
        self._speculation.cost.learn_settling(self._steps.settling)

    @property
    def stats(self) -> SpeculationStats:
        return self._speculation.stats

    def connect(self, backs: Sequence[str]) -> None:
        self._n_backs = len(backs)
        self._engine.apply(SetBacks(names=list(backs)), self._clock.now)

    def submit(self, sequence: str, key: int) -> None:
        """Start a sequence whose prompt is the key of a text."""
        n_tokens = self._texts[key].n_tokens - 1
        request = Submit(sequence=sequence, tokens=[key], sampling=GREEDY, max_tokens=n_tokens)
        self._engine.apply(request, self._clock.now)
        self._wake()

    def post(self, draft: Draft) -> None:
        self._inbox.append(draft.model_copy(update={"received_at": self._clock.now}))
        self._wake()

    def _wake(self) -> None:
        """Handle an arrival, unless a step is in progress."""
        if not self._busy:
            self._turn()

    def _turn(self) -> None:
        for draft in self._inbox:
            self._engine.apply(draft, self._clock.now)
        self._inbox.clear()
        self._n_turns += 1
        action = self._engine.next(self._clock.now)
        self._engine.pop_edits()  # there is no memory to edit
        match action:
            case Wait(seconds):
                self._wait(seconds)
            case DraftOrder() as order:
                self._draft(order)
            case StepPlan() as plan:
                self._decode(plan)

    def _wait(self, seconds: float) -> None:
        n = self._n_turns

        def end() -> None:
            if n == self._n_turns:
                self._turn()

        self._clock.after(seconds, end)

    def _draft(self, order: DraftOrder) -> None:
        assert self._inline
        self._busy = True
        done = self._engine.draft(order)
        seconds = self._inline.seconds(done.n_tokens) * max(0.5, self._rng.gauss(1.0, _JITTER))

        def end() -> None:
            self._engine.drafted(done, seconds)
            self._busy = False
            self._turn()

        self._clock.after(seconds, end)

    def _decode(self, plan: StepPlan) -> None:
        self._busy = True
        seconds = self._step_seconds(plan.n_tokens) * max(0.5, self._rng.gauss(1.0, _JITTER))
        host = self._host.of_step(sum(len(entry.draft) for entry in plan.entries), plans=self._plans)
        began = self._clock.now

        def end() -> None:
            logits = [np.empty((span.n_logits, 0), np.float32) for span in plan.layout]
            self._engine.decoded(plan, logits, self._clock.now, self._clock.now - began - host)
            for event in self._engine.pop_events():
                if isinstance(event, Committed | Finished | Tune):
                    self._observer(event)
            self._turn_later()

        self._compute(seconds + host, end)

    @property
    def _plans(self) -> bool:
        """True if there are drafts to plan with."""
        has_drafters = self._n_backs > 0 or self._inline is not None
        return has_drafters and not self._speculation.guard.is_pausing

    def _step_seconds(self, n: int) -> float:
        self._n_of_size = self._n_of_size + 1 if n == self._size else 0
        self._size = n
        settling = self._steps.settling[self._n_of_size : self._n_of_size + 1]
        return self._steps.seconds(n) + sum(settling)

    def _turn_later(self) -> None:
        """Schedule a turn after all events of this moment, such as a client's next request."""

        def turn() -> None:
            self._busy = False
            self._turn()

        self._clock.after(0.0, turn)
