"""Events: messages from the engine process to the front process, one JSON object per line over a socket pair.

Both ends are ours, so input is trusted. The other direction is `lead.engine.commands`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

from shared.protocol import Tune

FinishReason = Literal["stop", "length"]


EXACT_SAMPLE = "drafts never change the model's choices"


class Exactness(BaseModel, frozen=True):
    """A guarantee for texts, stated by `guarantee`. is_on: texts are bit-identical in all circumstances.

    cost: the ratio of T(1) with the guarantee to T(1) without it, even if the guarantee is off; None:
    unknown. found: facts found while loading the target, for the next process (`lead.engine.target_loading`).
    """

    is_on: bool = False
    cost: float | None = None
    guarantee: str = EXACT_SAMPLE
    found: dict[str, Any] = {}


class Ready(BaseModel, frozen=True):
    """The model is loaded, and commands can be sent.

    n_ctx_sequence: the maximum number of tokens in a sequence's context. n_threads: the number of threads at
    first. draft_model: the name of the draft model in the engine. mtp: the target's own heads draft. devices:
    which layers are on which device, for people. has_checkpoints: prompts can be reused only up to a
    checkpoint.
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
    """A sign of life: the engine is idle, is loading its model, or has made progress since the last sign."""

    type: Literal["alive"] = "alive"


class LoadFailed(BaseModel, frozen=True):
    """The model cannot be loaded, and the engine ends. may_recover: another attempt may succeed."""

    type: Literal["load_failed"] = "load_failed"
    reason: str
    may_recover: bool = False


class Started(BaseModel, frozen=True):
    """A sequence got a slot whose cache already holds its first `n_cached` tokens.

    again: the sequence had a slot before, but was preempted, or an earlier engine process began it.
    """

    type: Literal["started"] = "started"
    sequence: str
    n_cached: int
    slot: int = 0
    again: bool = False


class PromptProgress(BaseModel, frozen=True):
    """The first `n_processed` of `n_total` prompt tokens have been read; `n_cached` of them were cached.

    seconds (set by the front): the time since the sequence got its slot; 0 while nothing has been decoded.
    """

    type: Literal["progress"] = "progress"
    sequence: str
    n_processed: int
    n_total: int
    n_cached: int
    seconds: float = 0.0


class Pieces(BaseModel, frozen=True):
    """The bytes of consecutive tokens from the id `first` on, in hexadecimal. control: ids of
    control tokens.
    """

    type: Literal["pieces"] = "pieces"
    first: int
    pieces: list[str]
    control: list[int] = []


class TokenProbabilities(BaseModel, frozen=True):
    """The log-probability of the chosen token, and (id, log-probability) of the most likely tokens.

    They are probabilities instead if the request asked for the distribution after the filters.
    """

    chosen: float
    top: list[tuple[int, float]]


class Committed(BaseModel, frozen=True):
    """The tokens of a sequence that a step committed: committed[start : start + len(tokens)].

    Several steps without drafts are merged. tokens[:n_accepted] were draft tokens; `rejected` is the rest of
    the verified draft. sources: the source of each draft token, accepted ones first. n_right: for each back,
    the numbers (in time, too late) of its draft tokens that were right since the last step. Tokens count
    whether they were verified or not.
    """

    type: Literal["committed"] = "committed"
    sequence: str
    start: int
    tokens: list[int]
    n_accepted: int = 0
    rejected: list[int] = []
    sources: list[str] = []
    n_right: dict[str, tuple[int, int]] = Field(default_factory=dict)
    probabilities: list[TokenProbabilities] = []  # one for each token, if requested

    @property
    def n_drafted(self) -> int:
        """The number of draft tokens that the step verified."""
        return self.n_accepted + len(self.rejected)

    @property
    def is_plain(self) -> bool:
        """True if the event has only tokens."""
        return not (self.sources or self.n_right or self.probabilities)


class Finished(BaseModel, frozen=True):
    """A sequence is complete."""

    type: Literal["finished"] = "finished"
    sequence: str
    reason: FinishReason


class Failed(BaseModel, frozen=True):
    """A sequence cannot continue. param: the request field at fault; None: the request was valid.

    may_recover: another attempt may succeed.
    """

    type: Literal["failed"] = "failed"
    sequence: str
    reason: str
    param: str | None = None
    may_recover: bool = False


class DraftsDropped(BaseModel, frozen=True):
    """`n_stale` drafts of a source came too late for the engine since the last such event."""

    type: Literal["drafts_dropped"] = "drafts_dropped"
    source: str
    n_stale: int


class Answer(BaseModel, frozen=True):
    """The answer to the `Ask` of the same number: a reply, or the reason why nothing was done.

    may_recover: another attempt may succeed.
    """

    type: Literal["answer"] = "answer"
    number: int
    reply: dict[str, Any] = {}
    reason: str = ""
    may_recover: bool = False


SequenceEvent = Started | PromptProgress | Committed | Finished | Failed
"""Events about one sequence."""
BackEvent = DraftsDropped | Tune
"""Events about backs, and messages to all of them."""
_AnyEvent = Ready | Alive | LoadFailed | Pieces | Answer | SequenceEvent | BackEvent
Event = Annotated[_AnyEvent, Field(discriminator="type")]

_events: TypeAdapter[_AnyEvent] = TypeAdapter(Event)


def encode_line(message: BaseModel) -> bytes:
    """Encode an event or a command as one line."""
    return message.model_dump_json().encode() + b"\n"


def decode_event(line: bytes) -> Event:
    return _events.validate_json(line)
