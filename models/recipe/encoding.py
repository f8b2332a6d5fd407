"""A dialogue as tokens, and how much each of them weighs in the loss."""

from dataclasses import dataclass

from chatml import Message
from tokenizers import Tokenizer

PROMPT_WEIGHT = 0.1
_N_SHORT = 40  # answers up to this many tokens may weigh more
_N_OPENING = 16  # tokens at the beginning of a paragraph that may weigh more


@dataclass(frozen=True)
class Document:
    """One dialogue: token ids and their weights, equally many."""

    ids: list[int]
    weights: list[float]


def encode(
    messages: list[Message], tokenizer: Tokenizer, boost: float = 1.0, opening: float = 1.0
) -> Document:
    """What the assistant says (and its <|im_end|>) weighs 1, the rest less, the marks around it nothing.

    `boost` is the weight of short answers, `opening` a factor for the beginnings of paragraphs.
    """
    start, end = token_id(tokenizer, "<|im_start|>"), token_id(tokenizer, "<|im_end|>")
    newline = tokenizer.encode("\n").ids
    ids: list[int] = []
    weights: list[float] = []
    for message in messages:
        own = message["role"] == "assistant"
        head = [start, *tokenizer.encode(message["role"] + "\n").ids]
        body = [*tokenizer.encode(message["content"]).ids, end]
        ids += head + body + newline
        each = _weight(len(body), boost) if own else PROMPT_WEIGHT
        body_weights = [each] * len(body)
        if own and opening != 1.0:
            _stress_openings(body, newline[0], body_weights, each * opening)
        weights += [0.0] * len(head) + body_weights + [0.0] * len(newline)
    return Document([*ids, token_id(tokenizer, "<|endoftext|>")], [*weights, PROMPT_WEIGHT])


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a special token; ValueError if the tokenizer is not of this recipe."""
    found: int | None = tokenizer.token_to_id(token)
    if found is None:
        raise ValueError(f"the tokenizer has no {token}: train it with tokenizer.py")
    return found


def _weight(n_answer: int, boost: float) -> float:
    return boost if n_answer <= _N_SHORT else 1.0


def _stress_openings(body: list[int], newline: int, weights: list[float], stressed: float) -> None:
    """Change the weights where a story turns to the trouble that was asked for: after an empty line."""
    for i in range(len(body) - 1):
        if body[i] == body[i + 1] == newline:
            opening = slice(i + 2, i + 2 + _N_OPENING)
            weights[opening] = [stressed] * len(weights[opening])
