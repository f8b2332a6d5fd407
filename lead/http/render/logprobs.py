"""Log-probabilities in the shapes of OpenAI's two APIs and of llama-server."""

from collections.abc import Sequence
from typing import Any

from lead.generation.assembler import TextToken
from shared.llama.vocabulary import Vocabulary


def chat_logprobs(tokens: Sequence[TextToken], vocabulary: Vocabulary) -> dict[str, Any] | None:
    """OpenAI's `logprobs` of a chat's choice, with llama-server's ids; None if none were requested."""
    entries = token_probabilities(tokens, vocabulary)
    return {"content": entries, "refusal": None} if entries else None


def token_probabilities(
    tokens: Sequence[TextToken], vocabulary: Vocabulary, *, filtered: bool = False
) -> list[dict[str, Any]]:
    """llama-server's `completion_probabilities`; `filtered`: probabilities among the candidates (`prob`)."""
    name, several = ("prob", "top_probs") if filtered else ("logprob", "top_logprobs")
    return [
        {
            **_token(token.token, token.probabilities.chosen, name, vocabulary),
            several: [_token(other, value, name, vocabulary) for other, value in token.probabilities.top],
        }
        for token in tokens
        if token.probabilities is not None
    ]


class TextLogprobs:
    """OpenAI's `logprobs` of a text completion's choice, each token with its place in the text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._n_characters = 0

    def add(self, tokens: Sequence[TextToken]) -> dict[str, Any] | None:
        """Of the next tokens; None if none were requested."""
        logprobs: dict[str, list[Any]] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for token in tokens:
            offset = self._n_characters
            self._n_characters += len(token.text)
            if token.probabilities is None:
                continue
            logprobs["tokens"].append(_text(token.token, self._vocabulary))
            logprobs["token_logprobs"].append(token.probabilities.chosen)
            logprobs["top_logprobs"].append(
                {_text(other, self._vocabulary): value for other, value in token.probabilities.top}
            )
            logprobs["text_offset"].append(offset)
        return logprobs if logprobs["tokens"] else None


def _token(token: int, value: float, name: str, vocabulary: Vocabulary) -> dict[str, Any]:
    data = vocabulary.piece(token, special=True)
    return {"id": token, "token": _text(token, vocabulary), "bytes": list(data), name: value}


def _text(token: int, vocabulary: Vocabulary) -> str:
    """Part of a character becomes U+FFFD; `bytes` has the actual bytes."""
    return vocabulary.piece(token, special=False).decode("utf-8", "replace")
