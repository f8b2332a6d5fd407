"""Commands: messages from the front process to a running engine, one JSON object per line over a socket pair.

Both ends are ours, so input is trusted; drafts of backs have been checked. The other direction is
`lead.engine.events`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

from shared.image_span import ImageSpan, without_images
from shared.protocol import Draft
from shared.sampling.parameters import SamplingParameters

PolicyName = Literal["adaptive", "fixed", "sync", "off"]
NGRAM, PREDICTION, SUFFIX, DRAFT_MODEL, MTP = "ngram", "prediction", "suffix", "draft_model", "mtp"
OWN_SOURCES = frozenset({NGRAM, PREDICTION, SUFFIX, DRAFT_MODEL, MTP})
"""The draft sources inside the lead. A back may not have one of these names."""


class Submit(BaseModel, frozen=True):
    """Generate at most `max_tokens` tokens after a prompt; None: any number.

    Without `n_keep`, the sequence ends when its context is full. With `n_keep`, the oldest tokens after the
    first `n_keep` are discarded instead (`lead.engine.context_shift`). `n_keep` is at most n_ctx - 2.

    The following options do not change the tokens:

    * prediction: text that the client expects the answer to resemble
    * n_probs: report the probabilities of the chosen token and the `n_probs` likeliest tokens at each
      position
    * filtered: report probabilities after the sampling filters, not before
    * n_draft: verify at most this many draft tokens per step
    * slot: run in this slot only
    * progress: report how much of the prompt has been read
    * checkpoints: lengths of prefixes of the prompt that later requests may share; empty: unknown
    * owner: take drafts from this owner's recent texts, and add this text to them; None: neither
    * keep_for: the owner whose texts on disk (`--cache-disk`) the sequence may continue, and for whom it is
      stored there; None: it is never stored on disk
    * unread: the client sees nothing before the answer ends
    * images: the spans of image rows within `tokens`, where ids of the images' contents stand for the rows;
      each image is followed by a token of the prompt

    To continue a sequence that an earlier engine process began, `tokens[n_prompt:]` are the tokens that it
    generated, and `n_cached` is the value from the sequence's `Started` event. n_prompt 0: nothing was
    generated. n_cached None: the sequence had not started.
    """

    type: Literal["submit"] = "submit"
    sequence: str = ""  # named by `lead.engine_client.sequences`
    tokens: list[int]
    sampling: SamplingParameters
    max_tokens: int | None = None
    n_keep: int | None = None
    prediction: list[int] = []
    n_probs: int | None = None
    filtered: bool = False
    n_draft: int | None = None
    cache_prompt: bool = True
    slot: int | None = None
    progress: bool = False
    checkpoints: tuple[int, ...] = ()
    owner: int | None = None
    keep_for: str | None = None
    unread: bool = False
    images: tuple[ImageSpan, ...] = ()
    n_prompt: int = 0
    n_cached: int | None = None

    @property
    def text(self) -> list[int]:
        """`tokens` without the rows of images; samplers, drafts and events count positions in this list."""
        return without_images(self.tokens) if self.images else self.tokens

    @property
    def n_text_prompt(self) -> int:
        """The number of prompt tokens in `text`."""
        return (self.n_prompt or len(self.tokens)) - sum(image.n_rows for image in self.images)


class Cancel(BaseModel, frozen=True):
    """End a sequence whose client has left."""

    type: Literal["cancel"] = "cancel"
    sequence: str


class SetBacks(BaseModel, frozen=True):
    """Set the names of the connected backs. share_cores: one of these backs runs on this machine."""

    type: Literal["set_backs"] = "set_backs"
    names: list[str]
    share_cores: bool = False


class SetPolicy(BaseModel, frozen=True):
    """Change the policy that chooses the depth of drafts. depth: for the policies `fixed` and `sync`."""

    type: Literal["set_policy"] = "set_policy"
    policy: PolicyName
    depth: int


class Ask(BaseModel, frozen=True):
    """Ask a `lead.engine.question.EngineQuestion`; the `Answer` has the same `number`.

    question: the name of the question's class. fields: its fields.
    """

    type: Literal["ask"] = "ask"
    number: int
    question: str
    fields: dict[str, Any] = {}


_AnyCommand = Submit | Cancel | Draft | SetBacks | SetPolicy | Ask
Command = Annotated[_AnyCommand, Field(discriminator="type")]

_commands: TypeAdapter[_AnyCommand] = TypeAdapter(Command)


def decode_command(line: bytes) -> Command:
    return _commands.validate_json(line)
