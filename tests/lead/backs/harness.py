"""The registry of backs without engine, transport and real time."""

from lead.backs.registry import Backs
from lead.engine.commands import Submit
from lead.engine.events import Committed, Started
from lead.engine_client.sequences import Sequences
from lead.settings.limits import RequestLimits
from shared.protocol import PROTOCOL_VERSION, Hello, VocabularyId
from shared.sampling.parameters import SamplingParameters

OURS = VocabularyId(fingerprint="same", n_tokens=100, model="big")
SAMPLING = SamplingParameters(seed=5, temperature=0.3)


def hello(**changes):
    fields = {"protocol": PROTOCOL_VERSION, "name": "b", "vocabulary": OURS, "n_ctx": 64, "n_sequences": 2}
    return Hello(**fields | changes)


class RegistryHarness:
    """Backs with their sequences, the posts that reach the engine, and a clock that a test moves."""

    def __init__(self, **limits):
        self.now = 0.0
        self.posted = []
        self.sequences = Sequences()
        self.names, self.share_cores = [], False
        self.backs = Backs(
            self.sequences,
            100,
            post_draft=self.posted.append,
            on_change=self.note,
            clock=lambda: self.now,
            limits=RequestLimits(**limits),
        )

    def note(self, backs):
        self.names, self.share_cores = backs.names, backs.share_cores

    def join(self, transport="websocket", *, is_local=False, **changes):
        return self.backs.join(hello(**changes), OURS, transport, is_local=is_local)[0]

    def sequence(self, tokens=(1, 2, 3)):
        sequence = self.sequences.create(Submit(tokens=list(tokens), sampling=SAMPLING))
        self.sequences.apply(Started(sequence=sequence.id, n_cached=0), 0.0)
        return sequence

    def followed(self, tokens=(1, 2, 3), **changes):
        """A sequence, and a back that follows it."""
        sequence, back = self.sequence(tokens), self.join(**changes)
        self.backs.updates(back)
        return sequence, back

    def commit(self, sequence, tokens, **speculation):
        start = len(sequence.tokens)
        step = Committed(sequence=sequence.id, start=start, tokens=tokens, **speculation)
        self.sequences.apply(step, 0.0)


def connected(name, n_sequences=8):
    """A back for tests of an assignment alone."""
    return RegistryHarness().join(name=name, n_sequences=n_sequences)
