"""The engine with a fake model. Tests do each step."""

from lead.engine.commands import Cancel
from lead.engine.loop import execute
from lead.engine.scheduler import StepPlan
from lead.engine.speculation.policy import Wait
from shared.cache_edits import apply_edits
from shared.errors import KvCacheFullError
from shared.llama.span import Span
from tests.toy_engine import make_engine, make_limits, submit
from tests.toy_model import FakeTarget

NOW = 1.0
STEP_SECONDS = 1 / 128


class EngineHarness:
    """`spans`: of the last step. `lengths`: of all spans. `edits`: of the last action."""

    def __init__(self, depth=4, policy="fixed", make_drafters=None, limits=None, **more):
        self.limits = limits or make_limits(**more)
        drafters = {"make_drafters": make_drafters} if make_drafters else {}
        self.engine = make_engine(self.limits, depth, policy, **drafters)
        self.speculation = self.engine.speculation
        self.target = FakeTarget(
            self.limits.n_slots, self.limits.n_ctx, self.limits.n_batch, traits=self.limits.traits
        )
        self.spans = []
        self.lengths = []
        self.edits = []
        self.now = NOW

    def next(self):
        """The engine's next action. Only its edits are carried out."""
        action = self.engine.next(self.now)
        self.edits = self.engine.pop_edits()
        apply_edits(self.edits, self.target)
        return action

    @property
    def waits(self):
        """Return whether the engine wants to wait now."""
        action = self.next()
        return isinstance(action, Wait) and action.seconds > 0

    def step(self):
        """The events of the next step. Waits before it pass without news."""
        action = self.next()
        while isinstance(action, Wait):
            self.now += max(action.seconds, 0.001)
            assert self.now < 1000 * NOW, "it waits for ever"
            action = self.next()
        self.execute(action)
        self.engine.check_integrity()
        return self.engine.pop_events()

    def execute(self, action):
        """Let the model do the engine's action. A decode takes STEP_SECONDS."""
        times = iter((self.now - STEP_SECONDS, self.now))
        execute(action, self.engine, self.target, times.__next__)
        if isinstance(action, StepPlan):
            self.spans = [
                Span(each.slot, each.start, each.tokens, each.n_logits, each.is_prompt)
                for each in action.entries
            ]
            self.lengths += [len(span.tokens) for span in self.spans]

    def drain(self):
        """The events of all steps until nothing is left to do."""
        events = []
        while not self.engine.idle:
            events += self.step()
        return events

    def submit(self, *args, **kwargs):
        self.apply(submit(*args, **kwargs))

    def cancel(self, sequence):
        self.apply(Cancel(sequence=sequence))

    def apply(self, command):
        self.engine.apply(command, self.now)

    def find_no_room(self, lost=()):
        """Report that the model has no room for the planned step; return the events."""
        self.engine.failed(KvCacheFullError("full", lost=lost))
        return self.engine.pop_events()

    def complete(self, *args, **kwargs):
        """Run a sequence to its end; return the number of cached tokens of its prompt."""
        self.submit(*args, **kwargs)
        (started,) = (event for event in self.drain() if event.type == "started")
        return started.n_cached
