"""The messages between back and lead: JSON, tagged by `type`, checked here and trusted inside.

A back dials `GET /v1/speculation` (WebSocket, one message per frame) or posts the same messages to
`POST /v1/speculation`. Committed tokens are append-only, so `(sequence, number of committed tokens)` names
a prefix; that is all the synchronisation there is. docs/protocol.md says what a back has to know.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from shared.errors import ProtocolError
from shared.sampling.sampler import SamplingParameters
from shared.terminal import one_line

PROTOCOL_VERSION = 2
MAX_DRAFT_TOKENS = 64
"""More than any lead verifies in one step; bounds what a back can make the lead hold."""
MAX_TOKENS_PER_MESSAGE = 4096
"""Longer stretches of committed tokens arrive as several `extend` messages, so that frames stay small."""
MAX_BACK_MESSAGE_BYTES = 65_536
MAX_LEAD_MESSAGE_BYTES = 1 << 20
"""The largest frame that a back has to take."""
_TOKENS_BYTES = 64 << 10
"""Room for an `open`'s tokens, of eleven characters each at most, and for its other fields."""
MAX_DRAFTS_PER_SECOND = 2000.0
"""What a lead takes from each back unless it is told otherwise; each costs its front process about 0.1 ms."""

Token = Annotated[int, Field(ge=0, lt=1 << 31)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
SequenceId = Annotated[str, Field(min_length=1, max_length=64)]
ShortText = Annotated[str, Field(max_length=128)]
Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
CommittedTokens = Annotated[list[Token], Field(max_length=MAX_TOKENS_PER_MESSAGE)]


class _Message(BaseModel):
    # Newer peers may send more: what is not known is ignored.
    model_config = ConfigDict(frozen=True, extra="ignore")


class VocabularyId(_Message):
    """Two vocabularies with one fingerprint give every token id the same text."""

    fingerprint: ShortText
    n_tokens: Count
    model: ShortText


class Hello(_Message):
    """A back introduces itself; always its first message."""

    type: Literal["hello"] = "hello"
    protocol: int
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$")]
    vocabulary: VocabularyId
    n_ctx: Count
    n_sequences: Annotated[int, Field(ge=1, le=1024)]


class Draft(_Message):
    """Tokens proposed to follow the first `base` committed tokens of a sequence: a chain, or a tree.

    tokens[i] follows tokens[parents[i]], or the committed ones where parents[i] = -1; without `parents` each
    token follows the one before it. Of the tokens that follow the same one, the first is the likeliest; the
    others are side branches. `confidences` are the draft model's own, between 0 and 1: hints for scheduling,
    never for acceptance.
    """

    type: Literal["draft"] = "draft"
    sequence: SequenceId
    base: Count
    tokens: Annotated[list[Token], Field(min_length=1, max_length=MAX_DRAFT_TOKENS)]
    parents: Annotated[list[int], Field(max_length=MAX_DRAFT_TOKENS)] | None = None
    confidences: Annotated[list[Confidence], Field(max_length=MAX_DRAFT_TOKENS)] | None = None

    @model_validator(mode="after")
    def _check_tree(self) -> Self:
        for name, values in (("parents", self.parents), ("confidences", self.confidences)):
            if values is not None and len(values) != len(self.tokens):
                raise ValueError(f"{name}: {len(values)} for {len(self.tokens)} tokens")
        if self.parents and any(not -1 <= parent < i for i, parent in enumerate(self.parents)):
            raise ValueError("parents: a token follows one that stands before it, or -1")
        return self

    def first(self, n: int) -> "Draft":
        """The draft up to its first `n` tokens: still a tree, because a token stands behind its parent."""
        if len(self.tokens) <= n:
            return self
        parents, confidences = self.parents and self.parents[:n], self.confidences and self.confidences[:n]
        return self.model_copy(
            update={"tokens": self.tokens[:n], "parents": parents, "confidences": confidences}
        )


class Welcome(_Message):
    """The lead takes the back. `back` identifies it in later POSTs; `name` is how the lead calls it."""

    type: Literal["welcome"] = "welcome"
    protocol: int = PROTOCOL_VERSION
    back: ShortText
    name: ShortText
    max_draft: Annotated[int, Field(ge=1)] = MAX_DRAFT_TOKENS
    max_drafts_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] = MAX_DRAFTS_PER_SECOND


class Refused(_Message):
    """The lead does not take the back; `reason` says in words what a person can do about it."""

    type: Literal["refused"] = "refused"
    reason: str


class Open(_Message):
    """A sequence to follow, with its first committed tokens; the rest follows as `extend`."""

    type: Literal["open"] = "open"
    sequence: SequenceId
    sampling: SamplingParameters
    tokens: CommittedTokens


def fits_into_open(sampling: SamplingParameters) -> bool:
    """Whether backs can be told of a sequence with these parameters: a grammar may be larger than a frame."""
    return len(sampling.model_dump_json().encode()) <= MAX_LEAD_MESSAGE_BYTES - _TOKENS_BYTES


class Extend(_Message):
    """`tokens` are committed[start : start + len(tokens)]."""

    type: Literal["extend"] = "extend"
    sequence: SequenceId
    start: Count
    tokens: CommittedTokens


class Tune(_Message):
    """What pays at the moment: draft at most `n_ahead` tokens past the committed ones, and stop earlier
    where the product of their confidences falls below `min_confidence`.
    """

    type: Literal["tune"] = "tune"
    n_ahead: Annotated[int, Field(ge=0, le=MAX_DRAFT_TOKENS)]
    min_confidence: Confidence


class Close(_Message):
    """A sequence has ended, or is no longer this back's; its id is never used again."""

    type: Literal["close"] = "close"
    sequence: SequenceId
    reason: ShortText


BackMessage = Annotated[Hello | Draft, Field(discriminator="type")]
LeadMessage = Annotated[Welcome | Refused | Open | Extend | Close | Tune, Field(discriminator="type")]


class Post(_Message):
    """The body of `POST /v1/speculation`: a back's messages, if any; the answer is a `Reply`.

    `heard` is the number of the last reply that arrived: what a later one told is told again. Without it,
    all are taken to have arrived.
    """

    back: ShortText | None = None
    heard: Count | None = None
    messages: Annotated[list[BackMessage], Field(max_length=64)] = []


class Reply(_Message):
    """The news for a back that posts. Replies to one back are numbered from 1."""

    messages: list[LeadMessage]
    number: Count = 0


_from_back: TypeAdapter[Hello | Draft] = TypeAdapter(BackMessage)
_from_lead: TypeAdapter[Welcome | Refused | Open | Extend | Close | Tune] = TypeAdapter(LeadMessage)


def parse_back_message(data: str | bytes) -> Hello | Draft:
    """Read what a back sent; raises ProtocolError."""
    try:
        return _from_back.validate_json(data)
    except ValidationError as error:
        raise ProtocolError(_first(error)) from error


def parse_lead_message(data: str | bytes) -> Welcome | Refused | Open | Extend | Close | Tune:
    """Read what a lead sent; raises ProtocolError."""
    try:
        return _from_lead.validate_json(data)
    except ValidationError as error:
        raise ProtocolError(_first(error)) from error


def _first(error: ValidationError) -> str:
    """In one line for logs: a `type` that is not known is quoted as it came."""
    item = error.errors(include_url=False, include_input=False)[0]
    return one_line(f"{'.'.join(str(part) for part in item['loc']) or 'message'}: {item['msg']}")
