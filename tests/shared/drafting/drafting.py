"""A drafter without back, lead and network.

Its model equals the target, and drafts the target's own tokens: TEXT follows LONG.
"""

from shared.drafting.drafter import Drafter
from shared.drafting.drafter_options import DrafterOptions
from shared.llama.memory_traits import PLAIN
from shared.protocol import Close, Extend, Open, Tune
from shared.sampling.parameters import SamplingParameters
from tests.fake_backs import cells_for
from tests.toy_engine import submit
from tests.toy_model import END_TOKENS, GREEDY, FakeTarget, plain_run, toy_sampler

LONG = [0, 2]
TEXT, _ = plain_run(submit(tokens=LONG), 100)
SAMPLED = SamplingParameters(seed=7, temperature=0.9, repeat_penalty=1.3, repeat_last_n=8)


class DrafterHarness:
    """A drafter whose model has exactly the slots and cells that it asks for.

    Each further token makes a decode longer by `slope` times the time of one token.
    """

    def __init__(
        self,
        *,
        n_slots=2,
        n_window=100,
        n_ahead=4,
        n_batch=16,
        blur=0.0,
        traits=PLAIN,
        target=FakeTarget,
        make_sampler=toy_sampler,
        slope=0.1,
        interrupt=None,
        **more,
    ):
        options = DrafterOptions(n_slots, n_window, n_ahead, **more)
        self.model = target(
            options.n_model_slots, cells_for(options), n_batch, n_window=n_window, blur=blur, traits=traits
        )
        self.drafter = Drafter(self.model, options, make_sampler, END_TOKENS, interrupt=interrupt)
        self.slope = slope

    def open(self, sequence="s", tokens=LONG, sampling=GREEDY, part=None):
        self.drafter.handle(Open(sequence=sequence, sampling=sampling, tokens=tokens, part=part))

    def extend(self, start, tokens, sequence="s", part=None):
        self.drafter.handle(Extend(sequence=sequence, start=start, tokens=tokens, part=part))

    def close(self, sequence="s"):
        self.drafter.handle(Close(sequence=sequence, reason="ended"))

    def tune(self, n_ahead, min_confidence=0.0):
        self.drafter.handle(Tune(n_ahead=n_ahead, min_confidence=min_confidence))

    def draft(self, sequence="s"):
        """The current draft of a sequence; None if it is empty or the sequence has ended."""
        state = self.drafter.sequences.get(sequence)
        return state.draft() if state else None

    def step(self):
        """Do a step; return the drafts that grew, without their confidences."""
        grown = [sequence.draft() for sequence in self.drafter.step()]
        self.drafter.learn(1 + self.slope * (self.drafter.n_decoded.total() - 1))
        return [draft.model_copy(update={"confidences": None}) for draft in grown]

    def drain(self):
        """Return all drafts until nothing is left to do."""
        drafts = []
        while not self.drafter.idle:
            drafts += self.step()
        return drafts

    def last_draft(self):
        *_, draft = self.drain()
        return draft


def drafting(**options):
    """A harness that has drafted TEXT[2:6] after TEXT[:2]."""
    harness = DrafterHarness(**options)
    harness.open()
    harness.drain()
    return harness
