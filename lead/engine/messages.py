"""The messages between the lead's front process and its engine process.

One JSON object per line over a socket pair; both ends are ours, so what arrives is trusted. Commands go to
the engine, events come from it.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from shared.sampling.sampler import SamplingParameters
from shared.settings.compute import Compute

FinishReason = Literal["stop", "length"]
PolicyName = Literal["adaptive", "fixed", "sync", "off"]
NGRAM, PREDICTION = "ngram", "prediction"
"""The sources in the lead; no back may have such a name."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class Load(_Message):
    """The first command: what to run. `n_ctx` counts the tokens of all slots together, 0 = choose."""

    type: Literal["load"] = "load"
    model: Path
    n_ctx: int
    n_slots: int
    n_batch: int
    n_threads: int
    n_gpu_layers: int
    depth: int
    policy: PolicyName = "adaptive"
    ngram: bool = True
    calibrate: bool = True
    kv_unified: bool = True
    compute: Compute = Compute()


class Wishes(_Message):
    """What a client may ask of how it is served; none of it changes a token.

    `n_probs`: tell the probabilities of so many tokens at each place, beside the chosen one's; None: of none.
    `filtered`: those among what the filters leave. `n_draft`: verify at most so many draft tokens at once.
    `slot`: run in no other one. `progress`: tell how far the prompt has come.
    """

    n_probs: int | None = None
    filtered: bool = False
    n_draft: int | None = None
    cache_prompt: bool = True
    slot: int | None = None
    progress: bool = False


class Submit(_Message):
    """Continue `tokens` by at most `max_tokens` (None: until the context is full)."""

    type: Literal["submit"] = "submit"
    sequence: str
    tokens: list[int]
    sampling: SamplingParameters
    max_tokens: int | None
    prediction: list[int] = []  # what the client thinks the text will be
    wishes: Wishes = Wishes()


class Cancel(_Message):
    """Nobody wants this sequence any more."""

    type: Literal["cancel"] = "cancel"
    sequence: str


class PostDraft(_Message):
    """`source` proposes `tokens` to follow the first `base` committed tokens (see `shared.protocol.Draft`).

    `received_at` is the front's monotonic clock, which is the engine's, too.
    """

    type: Literal["draft"] = "draft"
    sequence: str
    source: str
    base: int
    tokens: list[int]
    parents: list[int] | None = None
    confidences: list[float] | None = None
    received_at: float = 0.0


class Sources(_Message):
    """The backs that are connected now, by name."""

    type: Literal["sources"] = "sources"
    names: list[str]


class SetPolicy(_Message):
    """Choose depths in this way from now on."""

    type: Literal["set_policy"] = "set_policy"
    policy: PolicyName
    depth: int


class Explain(_Message):
    """Send an `Explained`."""

    type: Literal["explain"] = "explain"


class Ready(_Message):
    """The model is loaded. `n_ctx_sequence` is the most tokens one sequence can have.

    `exact`: the logits of a token do not depend on how many others are in its batch.
    """

    type: Literal["ready"] = "ready"
    n_ctx: int
    n_ctx_sequence: int
    n_slots: int
    speculates: bool
    exact: bool


class LoadFailed(_Message):
    """The model cannot be loaded; the engine ends."""

    type: Literal["load_failed"] = "load_failed"
    reason: str


class Started(_Message):
    """A sequence got a slot; the keys and values of its first `n_cached` tokens were there already.

    `again`: it had one before and had to give way for a time.
    """

    type: Literal["started"] = "started"
    sequence: str
    n_cached: int
    slot: int = 0
    again: bool = False


class PromptProgress(_Message):
    """The first `n_processed` tokens of the prompt have been read, or were cached (`n_cached`)."""

    type: Literal["progress"] = "progress"
    sequence: str
    n_processed: int
    n_total: int
    n_cached: int


class TokenProbabilities(_Message):
    """Of a chosen token, and of the likeliest ones with their ids: see `lead.engine.probabilities`."""

    chosen: float
    top: list[tuple[int, float]]


class Committed(_Message):
    """One step's tokens of a sequence: committed[start : start + len(tokens)].

    tokens[:n_accepted] were drafted; `rejected` is the rest of the draft that was verified. `sources` says
    who proposed each of its tokens, the accepted ones first.
    """

    type: Literal["committed"] = "committed"
    sequence: str
    start: int
    tokens: list[int]
    n_accepted: int = 0
    rejected: list[int] = []
    sources: list[str] = []
    probabilities: list[TokenProbabilities] = []  # one for each token, where asked for

    @property
    def n_drafted(self) -> int:
        """Draft tokens that were in the step's batch."""
        return self.n_accepted + len(self.rejected)


class Finished(_Message):
    """A sequence has all its tokens."""

    type: Literal["finished"] = "finished"
    sequence: str
    reason: FinishReason


class Failed(_Message):
    """A sequence cannot go on: `param` names what in its request is at fault; None: it is not the request."""

    type: Literal["failed"] = "failed"
    sequence: str
    reason: str
    param: str | None = None


class DraftsDropped(_Message):
    """How many drafts of a source were stale when the lead looked at them, since the last such event."""

    type: Literal["drafts_dropped"] = "drafts_dropped"
    source: str
    n_stale: int


class Tuned(_Message):
    """What backs should draft from now on (see `shared.protocol.Tune`)."""

    type: Literal["tuned"] = "tuned"
    n_ahead: int
    min_confidence: float


class Explained(_Message):
    """What the planner has learned and done: plain JSON, for people and dashboards."""

    type: Literal["explained"] = "explained"
    report: dict[str, Any]


_AnyCommand = Load | Submit | Cancel | PostDraft | Sources | SetPolicy | Explain
_AnyEvent = (
    Ready
    | LoadFailed
    | Started
    | PromptProgress
    | Committed
    | Finished
    | Failed
    | DraftsDropped
    | Tuned
    | Explained
)
Command = Annotated[_AnyCommand, Field(discriminator="type")]
Event = Annotated[_AnyEvent, Field(discriminator="type")]

_commands: TypeAdapter[_AnyCommand] = TypeAdapter(Command)
_events: TypeAdapter[_AnyEvent] = TypeAdapter(Event)


def encode(message: Command | Event) -> bytes:
    """One line."""
    return message.model_dump_json().encode() + b"\n"


def decode_command(line: bytes) -> Command:
    """The command in one line."""
    return _commands.validate_json(line)


def decode_event(line: bytes) -> Event:
    """The event in one line."""
    return _events.validate_json(line)
