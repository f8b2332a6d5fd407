import pytest

from bench.prompts import KINDS, draw, preamble


def test_the_same_seed_draws_the_same_prompts():
    assert draw(list(KINDS), 3, 7) == draw(list(KINDS), 3, 7)


@pytest.mark.parametrize("kind", ["stories", "copying", "lists"])
def test_another_seed_draws_fresh_prompts(kind):
    texts = [{prompt.text for prompt in draw([kind], 5, seed)} for seed in range(4)]
    assert len(set.union(*texts)) > 15


def test_each_kind_has_as_many_as_asked_for():
    assert [prompt.kind for prompt in draw(["code", "lists"], 2, 0)] == ["code", "code", "lists", "lists"]


def test_a_kind_does_not_depend_on_the_others():
    assert draw(["lists"], 2, 5) == draw(["stories", "lists"], 2, 5)[2:]


def test_request_seeds_differ():
    assert len({prompt.seed for prompt in draw(list(KINDS), 10, 0)}) == 50


def test_an_unknown_kind_is_an_error():
    with pytest.raises(KeyError):
        draw(["riddles"], 1, 0)


def test_a_preamble_has_as_many_words_as_asked_for_and_is_fresh_for_each_seed():
    assert len(preamble(50, 0).split()) == 50
    assert preamble(50, 0) != preamble(50, 1)
