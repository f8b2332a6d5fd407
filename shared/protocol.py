"""The messages between back and lead: JSON objects tagged by `type`, validated here and trusted elsewhere.

A back connects to `GET /v1/speculation` (WebSocket, one message per frame), or posts the same messages to
`POST /v1/speculation`. Committed tokens are append-only, so `(sequence, number of committed tokens)`
identifies a prefix, and no other synchronization is needed. docs/protocol.md has the details for authors of
backs.
"""

from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SkipValidation,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from shared.errors import ProtocolError
from shared.sampling.parameters import SamplingParameters
from shared.terminal import one_line

PROTOCOL_VERSION = 2
MAX_DRAFT_TOKENS = 64
"""The most tokens of a draft, more than a lead verifies in a step. Bounds the memory of a back's drafts."""
MAX_SEQUENCES = 1024
"""The most sequences that a back may ask for."""
MAX_PARTS = 64
"""The most backs that divide the side branches of a sequence."""
MAX_TOKENS_PER_MESSAGE = 4096
"""The most committed tokens in a message; more are sent as several `extend` messages."""
MAX_BACK_MESSAGE_BYTES = 65_536
MAX_LEAD_MESSAGE_BYTES = 1 << 20
"""The size of the largest frame that a back must accept."""
_TOKENS_BYTES = 64 << 10
"""The bytes reserved in an `open` for its tokens, of at most eleven characters each, and other fields."""
MAX_DRAFTS_PER_SECOND = 2000.0
"""A lead's default rate limit for each back; a draft costs its front process about 0.1 ms."""

Token = Annotated[int, Field(ge=0, lt=1 << 31)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
SequenceId = Annotated[str, Field(min_length=1, max_length=64)]
ShortText = Annotated[str, Field(max_length=128)]
DelayMs = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
CommittedTokens = Annotated[list[Token], Field(max_length=MAX_TOKENS_PER_MESSAGE)]


class _Message(BaseModel):
    # Newer peers may send more fields: unknown ones are ignored.
    model_config = ConfigDict(frozen=True, extra="ignore")


class VocabularyId(_Message):
    """The identity of a vocabulary.

    Vocabularies with the same fingerprint have the same text for every token id.
    """

    fingerprint: ShortText
    n_tokens: Count
    model: ShortText


class Hello(_Message):
    """The introduction of a back; always its first message."""

    type: Literal["hello"] = "hello"
    protocol: int
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$")]
    vocabulary: VocabularyId
    n_ctx: Count
    n_sequences: Annotated[int, Field(ge=1, le=MAX_SEQUENCES)]


class Draft(_Message):
    """Tokens proposed to follow the first `base` committed tokens of a sequence: a chain, or a tree.

    tokens[i] follows tokens[parents[i]], or the committed tokens if parents[i] = -1. Without `parents`, each
    token follows the one before it. Of several tokens that follow the same token, the first is the likeliest;
    the others begin side branches. confidences: the draft model's own, between 0 and 1. They are hints for
    scheduling, never for acceptance.

    waited_ms, drafted_ms: set in the first draft after an `extend` that rejected the last draft. waited_ms is
    the time from the message's arrival to its handling. drafted_ms is the time from then to the sending of
    the draft.
    """

    type: Literal["draft"] = "draft"
    sequence: SequenceId
    base: Count
    tokens: Annotated[list[Token], Field(min_length=1, max_length=MAX_DRAFT_TOKENS)]
    parents: Annotated[list[int], Field(max_length=MAX_DRAFT_TOKENS)] | None = None
    confidences: Annotated[list[Confidence], Field(max_length=MAX_DRAFT_TOKENS)] | None = None
    waited_ms: DelayMs | None = None
    drafted_ms: DelayMs | None = None
    # The lead's own, whatever a back says there: its name, and when the draft came, on the monotonic clock.
    source: SkipJsonSchema[SkipValidation[str]] = ""
    received_at: SkipJsonSchema[SkipValidation[float]] = 0.0

    @model_validator(mode="after")
    def _check_tree(self) -> Self:
        for name, values in (("parents", self.parents), ("confidences", self.confidences)):
            if values is not None and len(values) != len(self.tokens):
                raise ValueError(f"{name}: {len(values)} for {len(self.tokens)} tokens")
        if self.parents and any(not -1 <= parent < i for i, parent in enumerate(self.parents)):
            raise ValueError("parents: each has to be the index of an earlier token, or -1")
        return self

    def first(self, n: int) -> "Draft":
        """Return the draft cut to its first `n` tokens; still a tree, as parents come before their
        children.
        """
        if len(self.tokens) <= n:
            return self
        parents, confidences = self.parents and self.parents[:n], self.confidences and self.confidences[:n]
        return self.model_copy(
            update={"tokens": self.tokens[:n], "parents": parents, "confidences": confidences}
        )


class Welcome(_Message):
    """The lead accepts the back. back: its id for later POSTs. name: its name in the lead."""

    type: Literal["welcome"] = "welcome"
    protocol: int = PROTOCOL_VERSION
    back: ShortText
    name: ShortText
    max_draft: Annotated[int, Field(ge=1)] = MAX_DRAFT_TOKENS
    max_drafts_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] = MAX_DRAFTS_PER_SECOND


class Refused(_Message):
    """The lead refuses the back. reason: an explanation with a remedy, for people.

    code: "vocabulary" if the back may join with the lead's vocabulary (`GET /v1/speculation/vocabulary`).
    """

    type: Literal["refused"] = "refused"
    reason: str
    code: ShortText | None = None


class BranchPart(_Message):
    """The part of a sequence's side branches that one of `of` backs drafts first."""

    index: Annotated[int, Field(ge=0, lt=MAX_PARTS)]
    of: Annotated[int, Field(ge=1, le=MAX_PARTS)]

    def has(self, position: int, token: int) -> bool:
        """Return whether the side branch that begins at `position` with `token` belongs to this part."""
        return (position + token) % self.of == self.index


class Open(_Message):
    """A sequence to draft for, with its first committed tokens; further tokens follow as `extend`.

    part: as in `Extend`.
    """

    type: Literal["open"] = "open"
    sequence: SequenceId
    sampling: SamplingParameters
    tokens: CommittedTokens
    part: BranchPart | None = None


def fits_into_open(sampling: SamplingParameters) -> bool:
    """Return whether an `open` with these parameters fits into a frame; a grammar may be too long."""
    return len(sampling.for_backs.model_dump_json().encode()) <= MAX_LEAD_MESSAGE_BYTES - _TOKENS_BYTES


class Extend(_Message):
    """Further committed tokens: `tokens` are committed[start : start + len(tokens)].

    part: the side branches for this back from now on, if several backs draft for the sequence; None: all.
    """

    type: Literal["extend"] = "extend"
    sequence: SequenceId
    start: Count
    tokens: CommittedTokens
    part: BranchPart | None = None


class Tune(_Message):
    """Limits of drafts from now on.

    A back drafts at most `n_ahead` tokens past the committed ones, and stops where the product of its
    confidences falls below `min_confidence`. value: the expected number of tokens by which one more draft
    token of this back advances the lead's texts, for backs with several leads; None: unknown.
    """

    type: Literal["tune"] = "tune"
    n_ahead: Annotated[int, Field(ge=0, le=MAX_DRAFT_TOKENS)]
    min_confidence: Confidence
    value: Confidence | None = None


class Close(_Message):
    """A sequence has ended; its id is never used again. Its last tokens may not have been sent."""

    type: Literal["close"] = "close"
    sequence: SequenceId
    reason: ShortText


BackMessage = Annotated[Hello | Draft, Field(discriminator="type")]
LeadMessage = Annotated[Welcome | Refused | Open | Extend | Close | Tune, Field(discriminator="type")]


class Post(_Message):
    """The body of `POST /v1/speculation`: a back's messages, if any. The response is a `Reply`.

    heard: the number of the last reply that arrived; contents of later replies are sent again. Without it,
    all replies count as arrived.
    """

    back: ShortText | None = None
    heard: Count | None = None
    messages: Annotated[list[BackMessage], Field(max_length=64)] = []


class Reply(_Message):
    """Messages for a back that uses POST. Replies to a back are numbered from 1."""

    messages: list[LeadMessage]
    number: Count = 0


_from_back: TypeAdapter[Hello | Draft] = TypeAdapter(BackMessage)
_from_lead: TypeAdapter[Welcome | Refused | Open | Extend | Close | Tune] = TypeAdapter(LeadMessage)


def parse_back_message(data: str | bytes) -> Hello | Draft:
    """Parse a message of a back; raises ProtocolError."""
    try:
        return _from_back.validate_json(data)
    except ValidationError as error:
        raise ProtocolError(_first(error)) from error


def parse_lead_message(data: str | bytes) -> Welcome | Refused | Open | Extend | Close | Tune:
    """Parse a message of a lead; raises ProtocolError."""
    try:
        return _from_lead.validate_json(data)
    except ValidationError as error:
        raise ProtocolError(_first(error)) from error


def _first(error: ValidationError) -> str:
    """Return the first error in one line, for logs; an unknown `type` is quoted from the peer."""
    item = error.errors(include_url=False, include_input=False)[0]
    return one_line(f"{'.'.join(str(part) for part in item['loc']) or 'message'}: {item['msg']}")
