"""A comparison reports speed-up and equality of the texts, as far as they are known."""

import pytest

from chat.answer import Answer
from chat.comparison import Comparison, requests
from chat.wire import Chunk


def answer(text="Once", rate=10.0, n_drafted=0):
    answer = Answer(lambda: 0.0)
    timings = {
        "predicted_n": 4,
        "predicted_per_second": rate,
        "draft_n": n_drafted,
        "draft_n_accepted": n_drafted,
    }
    answer.read(Chunk.model_validate({"choices": [{"delta": {"content": text}}], "timings": timings}))
    return answer


@pytest.mark.parametrize(
    ("one", "other", "sentence"),
    [
        (
            answer(n_drafted=3, rate=30),
            answer(),
            "3.00 times as fast with speculation. The texts are identical",
        ),
        (answer(n_drafted=3, rate=0), answer(), "The answers are too short"),
        (answer(), answer(), "There were no drafts either time"),
        (answer(n_drafted=3), answer(n_drafted=3), "The server used drafts both times"),
        (
            answer("Once upon"),
            answer("Once more"),
            "The texts DIFFER from character 6 on: 'upon' with speculation, 'more'",
        ),
        (answer("Once"), answer("Once more"), "character 5 on: '' with speculation, ' more' without"),
    ],
)
def test_the_verdict_compares_speeds_and_texts(one, other, sentence):
    assert sentence in Comparison(one, other).verdict


def test_both_requests_have_one_seed():
    with_drafts, without = requests({"messages": []}, 5)
    assert with_drafts == {"messages": [], "seed": 5}
    assert without == {"messages": [], "seed": 5, "speculative.n_max": 0}


def test_a_seed_that_is_set_is_used():
    assert requests({"seed": 0}, 5)[0]["seed"] == 0
