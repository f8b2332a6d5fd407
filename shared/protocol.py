"""The messages between back and lead: JSON objects tagged by `type`, validated here and trusted elsewhere.

A back connects to `GET /v1/speculation` (WebSocket, one message per frame), or posts the same messages to
`POST /v1/speculation`. Committed tokens are append-only, so `(sequence, number of committed tokens)`
identifies a prefix, and no other synchronization is needed. docs/protocol.md has the details for authors of
backs.
"""

from typing import Annotated, Any, Literal, Self

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
"""The maximum number of tokens of a draft, more than a lead verifies in a step. Bounds the memory of a back's
drafts.
"""
MAX_SEQUENCES = 1024
"""The maximum number of sequences that a back may ask for."""
MAX_PARTS = 64
"""The maximum number of backs that divide the side branches of a sequence."""
MAX_TOKENS_PER_MESSAGE = 4096
"""The maximum number of committed tokens in a message; more are sent as several `extend` messages."""
MAX_BACK_MESSAGE_BYTES = 65_536
MAX_LEAD_MESSAGE_BYTES = 1 << 20
"""The size of the largest frame that a back must accept."""
_TOKENS_BYTES = 64 << 10
"""The bytes reserved in an `open` for its tokens, of at most eleven characters each, and other fields."""
MAX_DRAFTS_PER_SECOND = 2000.0
"""A lead's default rate limit for each back; a draft costs the lead's front process about 0.1 ms."""

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


def _said(text: str) -> Any:
    """Return a field's description, for docs/protocol.md and the JSON Schema."""
    return Field(description=text)


class VocabularyId(_Message):
    """The identity of a vocabulary.

    Vocabularies with the same fingerprint have the same text for every token id.
    """

    fingerprint: ShortText
    n_tokens: Count
    model: ShortText


class Hello(_Message):
    """The first message, sent once per connection."""

    type: Literal["hello"] = "hello"
    protocol: Annotated[int, _said(str(PROTOCOL_VERSION))]
    name: Annotated[
        str,
        Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$"),
        _said("the requested name, 1 to 64 characters of `A-Z a-z 0-9 . _ : -`"),
    ]
    vocabulary: Annotated[
        VocabularyId,
        _said(
            "`{fingerprint, n_tokens, model}` ([vocabulary](#the-vocabulary)), "
            "texts of at most 128 characters"
        ),
    ]
    n_ctx: Annotated[
        Count, _said("length of the longest sequence that the back can follow, 0 for any; the lead logs it")
    ]
    n_sequences: Annotated[
        int,
        Field(ge=1, le=MAX_SEQUENCES),
        _said(f"the maximum number of sequences to follow at the same time, 1 to {MAX_SEQUENCES}"),
    ]


class Draft(_Message):
    """Proposed tokens, a chain or a tree, sent at any time, for any open sequence."""

    type: Literal["draft"] = "draft"
    sequence: Annotated[SequenceId, _said("from `open`")]
    base: Annotated[Count, _said("the number of committed tokens that the draft follows")]
    tokens: Annotated[
        list[Token],
        Field(min_length=1, max_length=MAX_DRAFT_TOKENS),
        _said(f"1 to {MAX_DRAFT_TOKENS} ids, and at most the `max_draft` of `welcome`"),
    ]
    parents: Annotated[
        Annotated[list[int], Field(max_length=MAX_DRAFT_TOKENS)] | None,
        _said(
            "Optional, one per token. Token i follows token `parents[i]` < i, or the committed tokens if it "
            "is -1. By default each token follows the previous token. The first child of a token is its "
            "likeliest successor. The other children begin side branches"
        ),
    ] = None
    confidences: Annotated[
        Annotated[list[Confidence], Field(max_length=MAX_DRAFT_TOKENS)] | None,
        _said(
            "Optional, one per token, 0 to 1: the drafter's probability that the token is right if its "
            "predecessors are. The lead calibrates them for scheduling. They never affect acceptance"
        ),
    ] = None
    waited_ms: Annotated[
        DelayMs | None,
        _said(
            "optional, in the first draft after an `extend` that rejected a draft: milliseconds from the "
            "arrival of that message until it was handled"
        ),
    ] = None
    drafted_ms: Annotated[
        DelayMs | None, _said("optional, with `waited_ms`: milliseconds from then until this draft was sent")
    ] = None
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
    """The answer to `hello`."""

    type: Literal["welcome"] = "welcome"
    protocol: Annotated[int, _said(str(PROTOCOL_VERSION))] = PROTOCOL_VERSION
    back: Annotated[ShortText, _said("the id for later POSTs, at most 128 characters")]
    name: Annotated[
        ShortText, _said("the back's name in the lead, with a number if the requested name was taken")
    ]
    max_draft: Annotated[
        int, Field(ge=1), _said("the maximum number of tokens in a draft (`--max-draft`)")
    ] = MAX_DRAFT_TOKENS
    max_drafts_per_second: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False),
        _said(
            "the maximum rate of drafts over all sequences (`--max-drafts-per-second`), "
            f"{MAX_DRAFTS_PER_SECOND:.0f} if absent"
        ),
    ] = MAX_DRAFTS_PER_SECOND


class Refused(_Message):
    """The negative answer to `hello`, after which the connection is closed."""

    type: Literal["refused"] = "refused"
    reason: Annotated[str, _said("an explanation with a remedy, for people")]
    code: Annotated[
        ShortText | None,
        _said("`vocabulary` if only the [vocabulary](#the-vocabulary) differs, otherwise absent or null"),
    ] = None


class BranchPart(_Message):
    """The part of a sequence's side branches that this back drafts first; the number of parts is `of`."""

    index: Annotated[int, Field(ge=0, lt=MAX_PARTS)]
    of: Annotated[int, Field(ge=1, le=MAX_PARTS)]

    def has(self, position: int, token: int) -> bool:
        """Return whether the side branch that begins at `position` with `token` belongs to this part."""
        return (position + token) % self.of == self.index


class Open(_Message):
    """A sequence to draft for."""

    type: Literal["open"] = "open"
    sequence: Annotated[SequenceId, _said("its id, 1 to 64 characters")]
    sampling: Annotated[
        SamplingParameters, _said("sampling parameters as in llama-server's requests, always with a `seed`")
    ]
    tokens: Annotated[
        CommittedTokens,
        _said(f"the first committed tokens, at most {MAX_TOKENS_PER_MESSAGE:,}; more follow as `extend`"),
    ]
    part: Annotated[BranchPart | None, _said("as in `extend`")] = None


def fits_into_open(sampling: SamplingParameters) -> bool:
    """Return whether an `open` with these parameters fits into a frame; a grammar may be too long."""
    return len(sampling.for_backs.model_dump_json().encode()) <= MAX_LEAD_MESSAGE_BYTES - _TOKENS_BYTES


class Extend(_Message):
    """Further committed tokens."""

    type: Literal["extend"] = "extend"
    sequence: SequenceId
    start: Annotated[Count, _said("`tokens` are committed[start : start + n]")]
    tokens: Annotated[CommittedTokens, _said(f"at most {MAX_TOKENS_PER_MESSAGE:,}")]
    part: Annotated[
        BranchPart | None,
        _said(
            f"optional: `{{index, of}}`, 0 ≤ index < of ≤ {MAX_PARTS}, the back's share of side branches "
            "from now on ([below](#side-branches-of-several-backs))"
        ),
    ] = None


class Tune(_Message):
    """Limits of useful drafts from now on, for all sequences."""

    type: Literal["tune"] = "tune"
    n_ahead: Annotated[
        int,
        Field(ge=0, le=MAX_DRAFT_TOKENS),
        _said(f"the maximum number of tokens to draft beyond the committed tokens, 0 to {MAX_DRAFT_TOKENS}"),
    ]
    min_confidence: Annotated[
        Confidence,
        _said("stop drafting when the product of the confidences falls below this value, 0 to 1"),
    ]
    value: Annotated[
        Confidence | None,
        _said(
            "optional, 0 to 1: the number of tokens by which one more draft token should advance the lead's "
            "texts. A back with several leads uses it to divide its time"
        ),
    ] = None


class Close(_Message):
    """The sequence has ended. Its last tokens may not have been sent. Its id is never used again."""

    type: Literal["close"] = "close"
    sequence: SequenceId
    reason: Annotated[ShortText, _said("`ended`")]


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
