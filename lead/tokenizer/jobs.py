"""What the front asks of a tokenizer process, and what it gets: pickled, each with a header.

Pickle, because both ends are one program with the same rights, as in `multiprocessing`.
"""

import pickle
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lead.chat.output_format import ParserConfig
from lead.chat.request import ConversationFields
from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from shared.logs import LogLevel

Prompt = str | Sequence[int | str]
"""Text, token ids, or a mix of both."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to the process that forks. chat_template: what was chosen; None: the model's own."""

    model: Path
    chat_template: str | None
    chat: ConversationOptions
    limits: RequestLimits
    log_level: LogLevel = "info"
    log_json: bool = False


@dataclass(frozen=True, slots=True)
class FieldTexts:
    """Texts in other fields of a request than its prompt. biased: the text keys of `logit_bias`."""

    prediction: str = ""
    biased: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparePrompts:
    """A request to continue texts: `PreparedRequest`."""

    prompts: Sequence[Prompt]
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    texts: FieldTexts = FieldTexts()


@dataclass(frozen=True, slots=True)
class PrepareChat:
    """A request of a chat API: `PreparedRequest`. conversation: see `write_conversation`."""

    conversation: bytes
    texts: FieldTexts = FieldTexts()


@dataclass(frozen=True, slots=True)
class CountPrompt:
    """The number of tokens in a conversation's prompt."""

    conversation: bytes


@dataclass(frozen=True, slots=True)
class RenderPrompt:
    """The text of a conversation's prompt, as the body of a response."""

    conversation: bytes


@dataclass(frozen=True, slots=True)
class TokenizeText:
    """The tokens of a text, as the body of a response."""

    text: str
    add_special: bool
    parse_special: bool
    with_pieces: bool


@dataclass(frozen=True, slots=True)
class DetokenizeIds:
    """The text of tokens, as the body of a response."""

    tokens: Sequence[int]


Job = PreparePrompts | PrepareChat | CountPrompt | RenderPrompt | TokenizeText | DetokenizeIds


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """All that a request's texts come to.

    prompts, prediction: token ids. biased: the tokens of each text. special_tokens: control tokens whose text
    the parser has to see. reads_control_texts: texts of the client may have been read as control tokens.
    """

    prompts: list["array[int]"]
    grammar: str | None = None
    prediction: "array[int]" = field(default_factory=lambda: array("i"))
    biased: dict[str, list[int]] = field(default_factory=dict)
    parser: ParserConfig | None = None
    n_before_last: int = 0
    special_tokens: frozenset[int] = frozenset()
    reads_control_texts: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The job failed, with a RequestError (its fields), or with a bug that the process has logged."""

    message: str
    param: str | None = None
    code: str | None = None
    is_bug: bool = False


HEADER = struct.Struct("!?Q")
"""Whether the sender ends after this message, and the number of bytes that follow."""


def encode(message: object, *, is_last: bool = False) -> bytes:
    """A message with its header."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(is_last, len(data)) + data


def decode(data: bytes | bytearray) -> Any:
    """The message that follows a header."""
    return pickle.loads(data)  # noqa: S301 - from the other end of a socket pair, see above


def write_conversation(body: ConversationFields) -> bytes:
    """The conversation of a request as JSON, much faster to write and read than pickled models."""
    return body.model_dump_json(
        include=set(ConversationFields.model_fields), exclude_unset=True, by_alias=True
    ).encode()


def read_conversation(data: bytes) -> ConversationFields:
    """The opposite of `write_conversation`."""
    return ConversationFields.model_validate_json(data)
