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
"""The draft sources in the lead itself; a back may not have such a name."""


class Submit(BaseModel, frozen=True):
    """Continue a prompt by at most `max_tokens` (None: until the context is full, or without end).

    When its context is full the sequence ends; with `n_keep` the oldest tokens after the first `n_keep` are
    discarded instead. `n_keep` is at most the length of the context less two (see
    `lead.engine.context_shift`).

    The following options do not affect the tokens. prediction: the text that the client expects. n_probs: at
    each position report the probabilities of this many tokens and of the chosen one; None: of none. filtered:
    probabilities after the filters. n_draft: verify at most this many draft tokens per step. slot: run in
    this slot only. progress: report how much of the prompt has been read. checkpoints: lengths of the prompt
    up to which later requests may share it; none if that is not known. owner: whose recent texts drafts may
    be taken from, this one among them when it has ended; None: nobody's. keep_for: the owner of texts on disk
    (`--cache-disk`) that it may continue, and among which it is stored; None: it is never stored on disk.
    unread: the client is shown nothing before its end. images: the rows of images among `tokens`, which
    contain the images' identities there, in order. A token of the prompt follows each image.

    A sequence that an earlier engine process had begun is submitted with the tokens generated so far:
    `tokens[n_prompt:]` (n_prompt 0: nothing). `n_cached`: as reported by its `Started`; None: it has not
    started.
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
        """`tokens` without the rows of images: the text that samplers, drafts and events count."""
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
    """The names of the backs that are connected now. share_cores: one of them runs on this machine."""

    type: Literal["set_backs"] = "set_backs"
    names: list[str]
    share_cores: bool = False


class SetPolicy(BaseModel, frozen=True):
    """Choose the depth of drafts by another policy."""

    type: Literal["set_policy"] = "set_policy"
    policy: PolicyName
    depth: int


class Ask(BaseModel, frozen=True):
    """A `lead.engine.question.EngineQuestion`, with the name of its type. `Answer` has the same `number`."""

    type: Literal["ask"] = "ask"
    number: int
    question: str
    fields: dict[str, Any] = {}


_AnyCommand = Submit | Cancel | Draft | SetBacks | SetPolicy | Ask
Command = Annotated[_AnyCommand, Field(discriminator="type")]

_commands: TypeAdapter[_AnyCommand] = TypeAdapter(Command)


def decode_command(line: bytes) -> Command:
    return _commands.validate_json(line)
