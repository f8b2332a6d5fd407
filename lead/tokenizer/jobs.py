"""Messages between the front and a tokenizer process, and the limits of a job.

A job is a call of a method of `TokenizerJobs`. Messages are pickled, because both ends are one program with
the same rights, as in `multiprocessing`. This module needs no llama.cpp and no Jinja, because the front has
neither.
"""

import pickle
import struct
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lead.chat_format.answer_memory import Turn
from lead.chat_format.output_format import ParserConfig
from lead.chat_format.request import ConversationFields
from shared.errors import DuoError
from shared.llama.model_info import ModelInfo
from shared.protocol import VocabularyId
from shared.sampling.call_grammars import CallGrammars

_MEGABYTE = 1 << 20
_FIXED_HEAP_BYTES = 96 * _MEGABYTE
_HEAP_BYTES_PER_BYTE = 40
_SECONDS_PER_SECOND_AND_MEGABYTE = 0.5

Prompt = str | Sequence[int | str]
"""Text, token ids, or a mix of both."""


@dataclass(frozen=True, slots=True)
class FieldTexts:
    """The texts in a request's fields other than its prompt, and whether the prompt's text is to be returned.

    grammar, json_schema: set for requests without a conversation. biased: the text keys of `logit_bias`.
    """

    grammar: str | None = None
    json_schema: Mapping[str, Any] | None = None
    prediction: str = ""
    biased: tuple[str, ...] = ()
    shows_prompt: bool = False


NO_TEXTS = FieldTexts()


@dataclass(frozen=True, slots=True)
class KnownTurn:
    """The previous turn of a conversation, if known.

    has_checkpoints: the target's memory can be cut only at checkpoints, not at every length.
    """

    last: Turn | None = None
    has_checkpoints: bool = False


NOTHING_KNOWN = KnownTurn()


@dataclass(frozen=True, slots=True)
class ImageRows:
    """The tokens that replace an image's marker in a prompt.

    tokens: the model's tokens around the image, and one number for each of its rows, which identifies the
    row.
    """

    marker: str
    tokens: "array[int]"


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """The results of tokenizing a request.

    prompts, prediction: token ids. unconstrained: warnings about tools whose calls have no grammar. biased:
    the tokens of each text in `logit_bias`. reads_control_texts: texts of the client may have been read as
    control tokens. prompt_texts: the texts of the prompts, if requested. cuts: lengths of a chat's prompt at
    which prompts of later turns may diverge from it. turn: the chat's turn, without its first `n_known`
    answers, which the previous turn already has. images: (position of the first row, index of the image) for
    each image in a chat's prompt.
    """

    prompts: list["array[int]"]
    grammar: str | None = None
    calls: CallGrammars | None = None
    unconstrained: Sequence[str] = ()
    prediction: "array[int]" = field(default_factory=lambda: array("i"))
    biased: dict[str, list[int]] = field(default_factory=dict)
    parser: ParserConfig | None = None
    cuts: tuple[int, ...] = ()
    reads_control_texts: bool = False
    prompt_texts: Sequence[str] = ()
    turn: Turn | None = None
    n_known: int = 0
    images: Sequence[tuple[int, int]] = ()


class MadePrompt(ABC):
    """A prompt that the tokenizer process makes from other texts; pickled as part of a job."""

    @abstractmethod
    def tokens(self, vocabulary: Any) -> "array[int]":
        """Return the tokens of the prompt. `vocabulary`: a `shared.llama.vocabulary.Vocabulary`.

        Raises UnsupportedError.
        """


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A description of the model and of llama.cpp, for the front.

    template: the chat template. problem: the reason why `template` is ChatML instead of the model's own.
    reasons: the model reasons before it answers.
    """

    info: ModelInfo
    bos: int | None
    adds_bos: bool
    bos_text: str
    eos_text: str
    template: str
    problem: str | None
    reasons: bool
    build: str
    cpu_kernel: str | None


class TokenizerJobs(Protocol):
    """The jobs that the front sends to a tokenizer process; they raise RequestError naming the field at
    fault.

    A `conversation` is the output of `write_conversation`.
    """

    def describe(self) -> ModelDescription:
        """Return the description of the model."""

    def identify(self) -> VocabularyId:
        """Return the vocabulary's id, which lead and back compare; computing it takes .15 s for 256,000
        tokens.
        """

    def prepare_prompts(
        self, prompts: Sequence[Prompt | MadePrompt], texts: FieldTexts = NO_TEXTS
    ) -> PreparedRequest:
        """Tokenize a request to continue texts.

        Raises UnsupportedError if a prompt cannot be made with this model.
        """

    def prepare_chat(
        self,
        conversation: bytes,
        texts: FieldTexts = NO_TEXTS,
        known: KnownTurn = NOTHING_KNOWN,
        images: Sequence[ImageRows] = (),
    ) -> PreparedRequest:
        """Make the prompt of a conversation, and the parser and grammar of its answer.

        known: the model's own tokens of earlier answers, which the prompt repeats. images: the images whose
        markers are in the conversation.
        """

    def count_prompt(self, conversation: bytes, images: Sequence[ImageRows] = ()) -> int:
        """Return the number of tokens in a conversation's prompt."""

    def render_prompt(self, conversation: bytes) -> bytes:
        """Render the prompt of a conversation; returns the body of a response."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool, with_pieces: bool) -> bytes:
        """Tokenize a text; returns the body of a response."""

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """Convert tokens to text; returns the body of a response."""


class GrammarsNeededError(DuoError):
    """A grammar must be checked, but this process was forked before the vocabulary was indexed for
    grammars.
    """


HEADER = struct.Struct("!i")
"""The number of bytes that follow, as in `multiprocessing.connection`."""


def encode_job(method: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> bytes:
    """Encode a call of a method of `TokenizerJobs`."""
    return encode((method.__name__, arguments, options))


def encode(message: object) -> bytes:
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def decode(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 - from the other end of a socket pair, see above


def write_conversation(body: ConversationFields) -> bytes:
    """Encode the conversation of a request as JSON, which is much faster than pickling models."""
    return body.model_dump_json(
        include=set(ConversationFields.model_fields), exclude_unset=True, by_alias=True
    ).encode()


def read_conversation(data: bytes) -> ConversationFields:
    return ConversationFields.model_validate_json(data)


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits of a job. cpu_seconds: CPU time of the process. heap_bytes: growth of its heap."""

    cpu_seconds: float
    heap_bytes: int

    @classmethod
    def of(cls, n_bytes: int, base_seconds: float) -> "JobLimits":
        """Return the limits for a job of `n_bytes`; an empty job may take `base_seconds`."""
        megabytes = n_bytes / _MEGABYTE
        return cls(
            base_seconds * (1 + _SECONDS_PER_SECOND_AND_MEGABYTE * megabytes),
            _FIXED_HEAP_BYTES + _HEAP_BYTES_PER_BYTE * n_bytes,
        )
