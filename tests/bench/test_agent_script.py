"""The scripted requests quote what the brief says they do, and nothing of it is in their own prompt."""

from itertools import pairwise

import pytest

from bench.agent_script import agent, shuffled
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary.load(builtin_target())


def test_the_same_seed_gives_the_same_requests(vocabulary):
    assert agent(vocabulary, 5, 1) == agent(vocabulary, 5, 1) != agent(vocabulary, 5, 2)


def pieces(tokens):
    return {tuple(tokens[i : i + 6]) for i in range(len(tokens) - 5)}


def test_most_of_an_answer_is_in_earlier_requests_and_little_in_its_own_prompt(vocabulary):
    requests, seen = agent(vocabulary, 12, 1), set()
    for i, (prompt, answer) in enumerate(requests):
        written, asked = pieces(answer), pieces(prompt)
        if i >= 4:
            assert len(written & seen) > 0.6 * len(written)
            assert len(written & asked) < 0.1 * len(written)
        seen |= written | asked


def test_each_answer_is_new_in_some_place(vocabulary):
    answers = [answer for _, answer in agent(vocabulary, 12, 1)]
    assert all(one != other for one, other in pairwise(answers[::4]))


def test_shuffled_texts_have_words_in_common_and_no_order(vocabulary):
    first, second = shuffled(vocabulary, 2, 90, 1)
    words = [{tuple(text.answer[i : i + 3]) for i in range(0, 90, 3)} for text in (first, second)]
    assert words[0] & words[1]
    pairs = [{tuple(text.answer[i : i + 6]) for i in range(0, 85, 3)} for text in (first, second)]
    assert not pairs[0] & pairs[1]
