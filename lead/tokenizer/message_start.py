"""Where the last message of a conversation begins in the tokens of its prompt.

Up to there a prompt is the same for other questions to the same assistant, and for other answers.
"""

from collections.abc import Sequence

from shared.llama.vocabulary import Vocabulary

_MIN_TOKENS = 64
"""A shorter beginning is decoded as quickly as a checkpoint of it is made."""


def tokens_before(content: str, prompt: str, tokens: Sequence[int], vocabulary: Vocabulary) -> int:
    """The number of `tokens` of `prompt` that end before the last occurrence of `content`; 0 if few or none.

    What the vocabulary adds (BOS, a blank) makes the number too small, never too large.
    """
    at = prompt.rfind(content) if content else -1
    if at <= 0:
        return 0
    n_bytes = len(prompt[:at].encode("utf-8", "replace"))
    n_tokens = 0
    for token in tokens:
        n_bytes -= len(vocabulary.piece(token, special=True))
        if n_bytes < 0:
            break
        n_tokens += 1
    return n_tokens if n_tokens >= _MIN_TOKENS else 0
