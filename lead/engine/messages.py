"""The messages between the lead's front process and its engine process.

One JSON object per line over a socket pair; both ends are ours, so what arrives is trusted. Commands go to
the engine, events come from it.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from shared.sampling import SamplingParameters

FinishReason = Literal["stop", "length"]


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


class Submit(_Message):
    """Continue `tokens` by at most `max_tokens` (None: until the context is full)."""

    type: Literal["submit"] = "submit"
    sequence: str
    tokens: list[int]
    sampling: SamplingParameters
    max_tokens: int | None


class Cancel(_Message):
    """Nobody wants this sequence any more."""

    type: Literal["cancel"] = "cancel"
    sequence: str


class PostDraft(_Message):
    """`source` proposes `tokens` to follow the first `base` committed tokens."""

    type: Literal["draft"] = "draft"
    sequence: str
    source: str
    base: int
    tokens: list[int]


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
    """A sequence got a slot; the keys and values of its first `n_cached` tokens were there already."""

    type: Literal["started"] = "started"
    sequence: str
    n_cached: int


class Committed(_Message):
    """One step's tokens of a sequence: committed[start : start + len(tokens)].

    tokens[:n_accepted] were drafted by `source`; `rejected` is the rest of the draft that was verified.
    """

    type: Literal["committed"] = "committed"
    sequence: str
    start: int
    tokens: list[int]
    source: str | None = None
    n_accepted: int = 0
    rejected: list[int] = []

    @property
    def n_drafted(self) -> int:
        """Draft tokens that were in the step's batch."""
        return self.n_accepted + len(self.rejected)


class Finished(_Message):
    """A sequence has all its tokens."""

    type: Literal["finished"] = "finished"
    sequence: str
    reason: FinishReason


class DraftsDropped(_Message):
    """How many drafts of a source were stale when the lead looked at them, since the last such event."""

    type: Literal["drafts_dropped"] = "drafts_dropped"
    source: str
    n_stale: int


Command = Annotated[Load | Submit | Cancel | PostDraft, Field(discriminator="type")]
Event = Annotated[
    Ready | LoadFailed | Started | Committed | Finished | DraftsDropped, Field(discriminator="type")
]

_commands: TypeAdapter[Load | Submit | Cancel | PostDraft] = TypeAdapter(Command)
_events: TypeAdapter[Ready | LoadFailed | Started | Committed | Finished | DraftsDropped] = TypeAdapter(Event)


def encode(message: Command | Event) -> bytes:
    """One line."""
    return message.model_dump_json().encode() + b"\n"


def decode_command(line: bytes) -> Command:
    """The command in one line."""
    return _commands.validate_json(line)


def decode_event(line: bytes) -> Event:
    """The event in one line."""
    return _events.validate_json(line)
