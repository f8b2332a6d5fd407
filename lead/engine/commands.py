"""Commands: what the front process tells its engine process, one JSON object a line over a socket pair.

Both ends are ours, so what arrives is trusted. The other direction is `lead.engine.events`.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

from shared.sampling.sampler import SamplingParameters
from shared.settings.model_options import ModelOptions

PolicyName = Literal["adaptive", "fixed", "sync", "off"]
NGRAM, PREDICTION = "ngram", "prediction"
"""The draft sources in the lead itself; a back may not have such a name."""


class Load(BaseModel, frozen=True):
    """The first command: what to run."""

    type: Literal["load"] = "load"
    model: Path
    options: ModelOptions
    depth: int
    policy: PolicyName = "adaptive"
    ngram: bool = True
    calibrate: bool = True


class RequestOptions(BaseModel, frozen=True):
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


class Submit(BaseModel, frozen=True):
    """Continue `tokens` by at most `max_tokens` (None: until the context is full)."""

    type: Literal["submit"] = "submit"
    sequence: str
    tokens: list[int]
    sampling: SamplingParameters
    max_tokens: int | None
    prediction: list[int] = []  # what the client thinks the text will be
    options: RequestOptions = RequestOptions()


class Cancel(BaseModel, frozen=True):
    """Nobody wants this sequence any more."""

    type: Literal["cancel"] = "cancel"
    sequence: str


class PostDraft(BaseModel, frozen=True):
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


class Sources(BaseModel, frozen=True):
    """The backs that are connected now, by name."""

    type: Literal["sources"] = "sources"
    names: list[str]


class SetPolicy(BaseModel, frozen=True):
    """Choose depths in this way from now on."""

    type: Literal["set_policy"] = "set_policy"
    policy: PolicyName
    depth: int


class Explain(BaseModel, frozen=True):
    """Send an `Explained`."""

    type: Literal["explain"] = "explain"


_AnyCommand = Load | Submit | Cancel | PostDraft | Sources | SetPolicy | Explain
Command = Annotated[_AnyCommand, Field(discriminator="type")]

_commands: TypeAdapter[_AnyCommand] = TypeAdapter(Command)


def encode_command(command: Command) -> bytes:
    """One line."""
    return command.model_dump_json().encode() + b"\n"


def decode_command(line: bytes) -> Command:
    """The command in one line."""
    return _commands.validate_json(line)
