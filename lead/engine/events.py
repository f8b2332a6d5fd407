"""Events: messages from the engine process to the front process, one JSON object per line over a socket pair.

Both ends are ours, so input is trusted. The other direction is `lead.engine.commands`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

from shared.protocol import Tune

FinishReason = Literal["stop", "length"]


EXACT_SAMPLE = "every token is the model's own choice, so a text is an exact sample whatever is drafted"


class Exactness(BaseModel, frozen=True):
    """The guarantee for texts as a sentence, and whether they are bit-identical in all circumstances.

    `cost`: the factor by which the guarantee makes, or would make, a step of one token longer; None: not
    known. found: what loading the target found out, for the next process (`lead.engine.target_loading`).
    """

    is_on: bool = False
    cost: float | None = None
    guarantee: str = EXACT_SAMPLE
    found: dict[str, Any] = {}


class Ready(BaseModel, frozen=True):
    """The model is loaded. `n_ctx_sequence`: the maximal number of tokens in the context of one sequence.

    `n_threads`: the initial number of threads. `draft_model`: the name of the draft model in the engine.
    `mtp`: the model's own heads draft. `devices`: which layers are where, for people. `has_checkpoints`: a
    prompt can be reused only up to a checkpoint.
    """

    type: Literal["ready"] = "ready"
    n_ctx: int
    n_ctx_sequence: int
    n_slots: int
    speculates: bool
    n_threads: int = 1
    exactness: Exactness = Exactness()
    draft_model: str | None = None
    mtp: bool = False
    devices: str = ""
    has_checkpoints: bool = False


class Alive(BaseModel, frozen=True):
    """A sign of life: the engine is idle, is loading its model, or has made progress since the last one."""

    type: Literal["alive"] = "alive"


class LoadFailed(BaseModel, frozen=True):
    """The model cannot be loaded, and the engine ends. `may_recover`: a retry may succeed."""

    type: Literal["load_failed"] = "load_failed"
    reason: str
    may_recover: bool = False


class Started(BaseModel, frozen=True):
    """A sequence got a slot, in which the keys and values of its first `n_cached` tokens were present.

    `again`: it had a slot before, and was preempted, or is continued by another engine process.
    """

    type: Literal["started"] = "started"
    sequence: str
    n_cached: int
    slot: int = 0
    again: bool = False


class PromptProgress(BaseModel, frozen=True):
    """The first `n_processed` tokens of the prompt have been read, or were cached (`n_cached`).

    The front process sets `seconds`: the time since the sequence got its slot; 0 while nothing has been
    decoded.
    """

    type: Literal["progress"] = "progress"
    sequence: str
    n_processed: int
    n_total: int
    n_cached: int
    seconds: float = 0.0


class Pieces(BaseModel, frozen=True):
    """The bytes of the tokens from `first` on, in hexadecimal. `control`: the tokens that are no text."""

    type: Literal["pieces"] = "pieces"
    first: int
    pieces: list[str]
    control: list[int] = []


class TokenProbabilities(BaseModel, frozen=True):
    """Probabilities of the chosen token and, with their ids, of the most likely tokens."""

    chosen: float
    top: list[tuple[int, float]]


class Committed(BaseModel, frozen=True):
    """The tokens of one step of a sequence, or of several steps without drafts: committed[start : start +
    len(tokens)].

    tokens[:n_accepted] were drafted; `rejected` is the rest of the verified draft. `sources`: the source of
    each of the draft's tokens, the accepted ones first. `n_right`: by back, how many of these tokens its
    drafts had, verified or not, and how many tokens it had too late, since the last step.
    """

    type: Literal["committed"] = "committed"
    sequence: str
    start: int
    tokens: list[int]
    n_accepted: int = 0
    rejected: list[int] = []
    sources: list[str] = []
    n_right: dict[str, tuple[int, int]] = Field(default_factory=dict)
    probabilities: list[TokenProbabilities] = []  # one for each token, where asked for

    @property
    def n_drafted(self) -> int:
        """The number of draft tokens in the step's batch."""
        return self.n_accepted + len(self.rejected)

    @property
    def is_plain(self) -> bool:
        """Whether the event says nothing but the tokens."""
        return not (self.sources or self.n_right or self.probabilities)


class Finished(BaseModel, frozen=True):
    """A sequence is complete."""

    type: Literal["finished"] = "finished"
    sequence: str
    reason: FinishReason


class Failed(BaseModel, frozen=True):
    """A sequence cannot continue. `param`: the request field at fault; None: the request was valid.

    may_recover: a retry may succeed.
    """

    type: Literal["failed"] = "failed"
    sequence: str
    reason: str
    param: str | None = None
    may_recover: bool = False


class DraftsDropped(BaseModel, frozen=True):
    """The number of a source's drafts that came too late for the engine, since the last such event."""

    type: Literal["drafts_dropped"] = "drafts_dropped"
    source: str
    n_stale: int


class Answer(BaseModel, frozen=True):
    """The answer to an `Ask`: a reply, or the reason why there is none and nothing has changed.

    may_recover: a retry may succeed.
    """

    type: Literal["answer"] = "answer"
    number: int
    reply: dict[str, Any] = {}
    reason: str = ""
    may_recover: bool = False


SequenceEvent = Started | PromptProgress | Committed | Finished | Failed
"""Events about one sequence."""
BackEvent = DraftsDropped | Tune
"""Events about backs, and what all of them are to hear."""
_AnyEvent = Ready | Alive | LoadFailed | Pieces | Answer | SequenceEvent | BackEvent
Event = Annotated[_AnyEvent, Field(discriminator="type")]

_events: TypeAdapter[_AnyEvent] = TypeAdapter(Event)


def encode_line(message: BaseModel) -> bytes:
    """Encode an event or a command as one line."""
    return message.model_dump_json().encode() + b"\n"


def decode_event(line: bytes) -> Event:
    return _events.validate_json(line)
