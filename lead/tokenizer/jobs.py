"""What passes between the front and a tokenizer process, and what a job may cost.

A job is a call of a method of `lead.tokenizer.preparation.Preparation`. Messages are pickled, because both
ends are one program with the same rights, as in `multiprocessing`.
"""

import pickle
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lead.chat.output_format import ParserConfig
from lead.chat.request import ConversationFields

_MEGABYTE = 1 << 20
_FIXED_HEAP_BYTES = 96 * _MEGABYTE
_HEAP_BYTES_PER_BYTE = 40
_SECONDS_PER_SECOND_AND_MEGABYTE = 0.5

Prompt = str | Sequence[int | str]
"""Text, token ids, or a mix of both."""


@dataclass(frozen=True, slots=True)
class FieldTexts:
    """Texts in other fields of a request than its prompt. biased: the text keys of `logit_bias`."""

    prediction: str = ""
    biased: tuple[str, ...] = ()


NO_TEXTS = FieldTexts()


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """All that a request's texts come to.

    prompts, prediction: token ids. biased: the tokens of each text. reads_control_texts: texts of the client
    may have been read as control tokens.
    """

    prompts: list["array[int]"]
    grammar: str | None = None
    prediction: "array[int]" = field(default_factory=lambda: array("i"))
    biased: dict[str, list[int]] = field(default_factory=dict)
    parser: ParserConfig | None = None
    n_before_last: int = 0
    reads_control_texts: bool = False


GRAMMARS_NEEDED = "grammars needed"
"""The answer to a job with a grammar, of a process that was forked before the vocabulary was indexed."""

HEADER = struct.Struct("!i")
"""The number of bytes that follow, as in `multiprocessing.connection`."""


def encode(message: object) -> bytes:
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def decode(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 - from the other end of a socket pair, see above


def write_conversation(body: ConversationFields) -> bytes:
    """The conversation of a request as JSON, much faster to write and read than pickled models."""
    return body.model_dump_json(
        include=set(ConversationFields.model_fields), exclude_unset=True, by_alias=True
    ).encode()


def read_conversation(data: bytes) -> ConversationFields:
    return ConversationFields.model_validate_json(data)


@dataclass(frozen=True, slots=True)
class JobLimits:
    """cpu_seconds: of the process. heap_bytes: more than the process had before."""

    cpu_seconds: float
    heap_bytes: int

    @classmethod
    def of(cls, n_bytes: int, base_seconds: float) -> "JobLimits":
        """For a job of `n_bytes`; an empty one may take `base_seconds`."""
        megabytes = n_bytes / _MEGABYTE
        return cls(
            base_seconds * (1 + _SECONDS_PER_SECOND_AND_MEGABYTE * megabytes),
            _FIXED_HEAP_BYTES + _HEAP_BYTES_PER_BYTE * n_bytes,
        )
