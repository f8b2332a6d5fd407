import pytest

from bench.prompts import draw


@pytest.mark.parametrize("kind", ["stories", "copying", "lists"])
def test_another_seed_draws_fresh_prompts(kind):
    texts = [{prompt.text for prompt in draw([kind], 5, seed)} for seed in range(4)]
    assert len(set.union(*texts)) > 15


def test_a_kind_does_not_depend_on_the_others():
    assert draw(["lists"], 2, 5) == draw(["stories", "lists"], 2, 5)[2:]
