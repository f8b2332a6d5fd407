"""The bodies of requests for embeddings and for reranking, in the formats of several APIs."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, Field

from lead.chat_format.fields import MAX_PROMPT_ELEMENTS, AtMost, NullIsDefault
from lead.embeddings.encoder_messages import L2
from lead.tokenizer.jobs import MadePrompt, Prompt
from shared.errors import RequestError

MAX_TEXTS = 4096
"""The maximum number of texts in a request."""
_TextTokens = Annotated[list[int], AtMost(MAX_PROMPT_ELEMENTS)]


def _check_number(given: Any) -> Any:
    """Raise ValueError for too many texts, before pydantic would report each as a wrong token."""
    if isinstance(given, list) and len(given) > MAX_TEXTS and not isinstance(given[0], int):
        raise ValueError(f"{len(given)} texts are too many. A request can have at most {MAX_TEXTS}")
    return given


_Input = Annotated[
    str | Annotated[list[str | _TextTokens], AtMost(MAX_TEXTS)] | _TextTokens, BeforeValidator(_check_number)
]


def _texts(given: _Input, name: str) -> list[Prompt]:
    """Return the texts of a request, which has a text or its tokens, or a list of either.

    Raises RequestError.
    """
    if not given:
        if isinstance(given, str):
            return [given]
        raise RequestError(f"{name}: the list is empty", name)
    if isinstance(given, str) or isinstance(given[0], int):
        return [given]
    return list(given)


class EmbeddingRequest(NullIsDefault, strict=True):
    """OpenAI's request for embeddings, with llama-server's fields."""

    input: _Input | None = None
    content: _Input | None = None
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int = Field(0, ge=0)
    embd_normalize: int = Field(L2, ge=-1, le=100)

    @property
    def field(self) -> str:
        return "content" if self.input is None and self.content is not None else "input"

    def texts(self) -> list[Prompt]:
        given = self.input if self.input is not None else self.content
        if given is None:
            raise RequestError("input: required", "input")
        return _texts(given, self.field)


class OllamaEmbedRequest(NullIsDefault, strict=True):
    """Ollama's request for embeddings. Its `options` and `keep_alive` do not affect the vectors."""

    model: str = ""
    input: str | Annotated[list[str], AtMost(MAX_TEXTS)] = ""
    truncate: bool = True
    dimensions: int = Field(0, ge=0)

    def texts(self) -> list[Prompt]:
        return [self.input] if isinstance(self.input, str) else list(self.input)


class OllamaEmbeddingsRequest(NullIsDefault, strict=True):
    """Ollama's older request for embeddings."""

    model: str = ""
    prompt: str = ""


class RankedText(BaseModel, strict=True):
    text: str


class RerankRequest(NullIsDefault, strict=True):
    """Jina's and Cohere's request for reranking; with `texts`, Hugging Face's (Text Embeddings Inference)."""

    query: str
    documents: Annotated[list[str | RankedText], AtMost(MAX_TEXTS)] | None = None
    texts: Annotated[list[str], AtMost(MAX_TEXTS)] | None = None
    model: str | None = None
    top_n: int | None = Field(None, ge=0)
    return_documents: bool = False
    return_text: bool = False
    truncate: bool = False

    field_of_documents: ClassVar = "documents"

    def candidates(self) -> list[str]:
        """Return the texts to rank. Raises RequestError."""
        given: Sequence[Any] = self.texts or self.documents or ()
        if not given:
            raise RequestError("documents: must be a list of texts", "documents")
        return [each if isinstance(each, str) else each.text for each in given]


@dataclass(frozen=True, slots=True)
class RankedPair(MadePrompt):
    """A question and a candidate text, as a reranker reads them."""

    query: str
    document: str

    def tokens(self, vocabulary: Any) -> "array[int]":
        from lead.embeddings.pair_tokens import pair_tokens  # noqa: PLC0415 - the front has no llama.cpp

        return pair_tokens(vocabulary, self.query, self.document)
