"""The prediction source proposes the client's text from where the answer is in it, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.drafters.prediction import PredictionDrafter

PROMPT = [900, 901, 902]
PREDICTION = list(range(100, 140))
FEW_KINDS = st.lists(st.integers(0, 3), max_size=60)


def drafter(prediction=PREDICTION):
    return PredictionDrafter(prediction, len(PROMPT))


def after(answer, n_most=3, prediction=PREDICTION):
    """What is proposed after `answer` has come token by token."""
    source = drafter(prediction)
    proposals = [source.draft([*PROMPT, *answer[:n]], n_most)[0] for n in range(len(answer) + 1)]
    return proposals[-1]


def test_it_starts_at_the_predictions_beginning():
    assert after([]) == [100, 101, 102]


def test_it_goes_on_while_the_answer_follows():
    assert after(PREDICTION[:7]) == [107, 108, 109]


def test_nothing_is_proposed_after_the_predictions_end():
    assert after(PREDICTION[:-1]) == [139]
    assert after(PREDICTION) == []


@pytest.mark.parametrize(
    "answer",
    [
        [*PREDICTION[:5], 7, 8, *PREDICTION[5:9]],  # inserted
        [*PREDICTION[:5], *PREDICTION[7:9]],  # left out
        [*PREDICTION[:5], 7, *PREDICTION[6:9]],  # replaced
        [7, 8, 9, *PREDICTION[:9]],  # something in front
    ],
)
def test_after_a_departure_two_equal_tokens_bring_it_back(answer):
    assert after(answer) == [109, 110, 111]


def test_where_the_answer_has_departed_nothing_is_proposed():
    assert after([*PREDICTION[:5], 7, 8]) == []


def test_what_comes_back_more_than_once_is_found_ahead_before_it_is_found_behind():
    line = [1, 2]
    prediction = [*line, 50, 51, *line, 60, 61, *line, 70, 71]
    assert after([1, 2, 50, 8, 9, 1, 2], 1, prediction) == [60]


def test_what_is_only_behind_is_found_too():
    assert after([*PREDICTION[:20], *PREDICTION[3:6]]) == [106, 107, 108]


def test_a_longer_match_counts_more_than_a_nearer_one():
    source = drafter([30, 31, 8, 1, 2, 50, 20, 21, 9, 1, 2, 60])
    assert source.draft([*PROMPT, 30, 31, 9, 1, 2], 1)[0] == [60]


def test_several_tokens_at_once_are_followed_like_single_ones():
    source = drafter()
    source.draft(PROMPT, 4)
    assert source.draft([*PROMPT, *PREDICTION[:4]], 2)[0] == [104, 105]


def test_the_first_look_may_come_after_tokens_were_committed():
    assert drafter().draft([*PROMPT, *PREDICTION[:4]], 2)[0] == [104, 105]


def test_asking_twice_gives_the_same():
    source = drafter()
    tokens = [*PROMPT, *PREDICTION[:4], 7, *PREDICTION[8:12]]
    assert source.draft(tokens, 5)[0] == source.draft(tokens, 5)[0] == PREDICTION[12:17]


def test_the_predictions_beginning_may_be_in_the_prompt():
    source = PredictionDrafter([5, 6, 7, 8], 2)
    assert source.draft([5, 6], 2)[0] == [5, 6]
    assert source.draft([5, 6, 7], 2)[0] == [8]


@pytest.mark.parametrize("prediction", [[], [100]])
def test_a_prediction_too_short_to_match_does_no_harm(prediction):
    assert after([7, 8, 9], 3, prediction) == []


def test_confidence_is_moderate_at_first_and_rises_while_the_answer_follows():
    source = drafter()
    firsts = [source.draft([*PROMPT, *PREDICTION[:n]], 1)[1][0] for n in range(20)]
    assert firsts == sorted(firsts)
    assert firsts[0] >= 0.5
    assert firsts[-1] > 0.85


def test_confidence_falls_after_a_departure():
    source = drafter()
    before = source.draft([*PROMPT, *PREDICTION[:10]], 1)[1][0]
    assert source.draft([*PROMPT, *PREDICTION[:10], 7, *PREDICTION[11:13]], 1)[1][0] < before


@given(FEW_KINDS, FEW_KINDS, st.integers(1, 20))
def test_every_draft_is_a_part_of_the_prediction_after_the_answers_last_tokens(prediction, answer, n):
    source = drafter(prediction)
    for end in range(len(answer) + 1):
        tokens = [*PROMPT, *answer[:end]]
        proposal, confidences = source.draft(tokens, n)
        assert len(proposal) == len(confidences) <= n
        assert all(0 < value < 1 for value in confidences)
        if proposal and answer[:end] != prediction[:end]:
            places = [at for at in range(2, len(prediction)) if prediction[at - 2 : at] == tokens[-2:]]
            assert proposal in [prediction[at : at + n] for at in places]


@given(FEW_KINDS, st.integers(1, 9))
def test_an_answer_that_is_the_prediction_is_followed_to_its_end(prediction, portion):
    source = drafter(prediction)
    for end in range(0, len(prediction), portion):
        assert source.draft([*PROMPT, *prediction[:end]], 5)[0] == prediction[end : end + 5]
