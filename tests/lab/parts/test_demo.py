"""The report of `make demo` on an answer."""

import pytest

from chat.answer import ChatAnswer
from chat.wire import Chunk
from lab.parts.demo import _figures

TOKENS = [
    {"text": "once", "source": None},
    {"text": " upon", "source": "ngram"},
    {"text": " a", "source": "ngram"},
]
DRAFTED = {
    "choices": [{"delta": {"content": "once upon a"}}],
    "speculation": {"tokens": TOKENS, "n_drafted": 4, "n_accepted": 2},
}
PLAIN = {"choices": [{"delta": {"content": "once upon a"}}]}


@pytest.mark.parametrize(
    ("chunk", "said"),
    [(DRAFTED, "3 tokens, 2 of 4 draft tokens accepted (50%): 2 from ngram"), (PLAIN, "1 token")],
)
def test_of_accepted_tokens_it_is_said_what_drafted_them(chunk, said):
    answer = ChatAnswer(lambda: 0.0)
    answer.read(Chunk.model_validate(chunk))
    assert _figures(answer) == said
