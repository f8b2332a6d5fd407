import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.drafters.lookup import (
    LONGEST_MATCH,
    Match,
    NgramDrafter,
    PredictionDrafter,
    confidence,
    follow,
    match_length,
)
from lead.engine.drafters.suffix_index import SuffixIndex

# Matches


TWO_KINDS = st.lists(st.integers(0, 1), max_size=50)


@given(TWO_KINDS, TWO_KINDS)
def test_a_match_is_as_long_as_the_common_ending(text, other):
    pairs = list(zip(reversed(text), reversed(other), strict=False))
    n = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    assert match_length(text, len(text), other, len(other)) == min(n, LONGEST_MATCH)


@pytest.mark.parametrize("length", [2, 5, 32])
def test_confidence_rises_with_agreement(length):
    disputed = [confidence(length, n, 4) for n in (1, 2, 3)]
    ranking = [*disputed, confidence(length, 1, 1), confidence(length, 4, 4)]
    assert ranking == sorted(set(ranking))


def test_another_match_whose_text_has_ended_does_not_agree():
    text = [1, 2, 50, 51, 1, 2, 50]
    _, confidences = follow(text, [Match(2, 2), Match(2, 6)], 2, wraps=False)
    assert confidences == [confidence(2, 2, 2), confidence(3, 1, 2)]


def test_another_match_goes_on_with_its_period():
    text = [7, 7, 7, 7]
    tokens, confidences = follow(text, [Match(3, 3), Match(2, 2)], 4, wraps=True)
    assert tokens == [7, 7, 7, 7]
    assert confidences == [confidence(3 + i, 2, 2) for i in range(4)]


# "ngram"


FEW_KINDS = st.lists(st.integers(0, 3), min_size=1, max_size=120)
SPLITS = st.lists(st.integers(1, 60), max_size=6)


def ngram_draft(tokens, n_max=8):
    return NgramDrafter(8).draft(tokens, n_max)[0]


def continuation(tokens, at, n):
    """Return tokens[at : at + n]. Behind the end of `tokens` the continuation repeats itself."""
    text = list(tokens)
    while len(text) < at + n:
        text.append(text[at + len(text) - len(tokens)])
    return text[at : at + n]


@pytest.mark.parametrize(
    ("tokens", "n_max", "draft"),
    [
        pytest.param([1, 2, 3, 4, 50, 9, 3, 4, 60, 1, 2, 3, 4], 1, [50], id="the longer match"),
        pytest.param([1, 2, 50, 9, 1, 2, 60, 8, 1, 2], 1, [60], id="the newer of equally long ones"),
        pytest.param([9, 1, 2, 3, 1, 2, 3], 8, [1, 2, 3, 1, 2, 3, 1, 2], id="a period past the end"),
        pytest.param([9, 7, 7, 7], 4, [7] * 4, id="a period of one token"),
        pytest.param([1, 2, 3, 1, 2], 0, [], id="no more than is wanted"),
    ],
)
def test_what_is_followed_is(tokens, n_max, draft):
    assert ngram_draft(tokens, n_max) == draft


PASSAGE = list(range(100, 160))


@pytest.fixture
def copying():
    """A drafter that follows a copy of PASSAGE."""
    drafter = NgramDrafter()
    drafter.draft([*PASSAGE, *PASSAGE[:5]], 1)
    return drafter


def test_a_copy_goes_on_where_it_was_although_the_index_has_forgotten_the_place(copying):
    copying._index = SuffixIndex()
    copying._index.n_indexed = len(PASSAGE)
    assert copying.draft([*PASSAGE, *PASSAGE[:8]], 2)[0] == PASSAGE[8:10]


def test_a_copy_that_was_left_is_not_followed_further(copying):
    assert copying.draft([*PASSAGE, *PASSAGE[:5], 7, 8], 2) == ([], [])


def test_confidence_rises_with_the_length_of_the_match():
    drafter = NgramDrafter()
    firsts = [drafter.draft([*PASSAGE, *PASSAGE[:n]], 1)[1][0] for n in (2, 5, 12, 30)]
    assert firsts == sorted(firsts)
    assert firsts[0] < 0.5
    assert firsts[-1] > 0.9


def test_confidence_rises_along_the_draft_because_each_right_token_lengthens_the_match():
    _, confidences = NgramDrafter().draft([*PASSAGE, *PASSAGE[:3]], 10)
    assert confidences == sorted(set(confidences))


def test_occurrences_that_disagree_lower_the_confidence_and_those_that_agree_raise_it():
    alone = [1, 2, 50, 9, 9, 7, 8, 1, 2]
    agreeing = [1, 2, 50, 9, 1, 2, 50, 8, 1, 2]
    disputed = [1, 2, 50, 9, 1, 2, 60, 8, 1, 2]
    one, more, less = (NgramDrafter().draft(tokens, 1)[1][0] for tokens in (alone, agreeing, disputed))
    assert less < one < more


def test_after_a_dispute_is_decided_the_confidence_is_that_of_a_match_alone():
    _, disputed = NgramDrafter().draft([1, 2, 50, 51, 9, 1, 2, 60, 61, 8, 1, 2], 2)
    _, alone = NgramDrafter().draft([1, 2, 60, 61, 8, 1, 2], 2)
    assert disputed[0] < alone[0]
    assert disputed[1] == alone[1]


@given(FEW_KINDS, st.integers(1, 20), st.integers(1, 8))
def test_every_draft_is_the_continuation_of_an_earlier_occurrence(tokens, n, n_bits):
    """Entries collide in an index of so few bits."""
    proposal, confidences = NgramDrafter(n_bits).draft(tokens, n)
    assert len(proposal) == len(confidences)
    assert all(0 < value < 1 for value in confidences)
    if proposal:
        assert len(proposal) == n
        places = [at for at in range(2, len(tokens)) if tokens[at - 2 : at] == tokens[-2:]]
        assert proposal in [continuation(tokens, at, n) for at in places]


@given(FEW_KINDS)
def test_an_occurrence_of_the_last_two_tokens_is_always_found(tokens):
    places = [at for at in range(2, len(tokens)) if tokens[at - 2 : at] == tokens[-2:]]
    assert bool(ngram_draft(tokens)) == bool(places)


@given(FEW_KINDS, SPLITS)
def test_it_does_not_matter_in_which_portions_the_text_came(tokens, portions):
    drafter = NgramDrafter(8)
    end = 0
    for portion in portions:
        end = min(len(tokens), end + portion)
        drafter.extend(tokens[:end])
    assert drafter.draft(tokens, 6) == NgramDrafter(8).draft(tokens, 6)


# "prediction"


PROMPT = [900, 901, 902]
PREDICTION = list(range(100, 140))
FEW_PREDICTED = st.lists(st.integers(0, 3), max_size=60)


def drafter(prediction=PREDICTION):
    return PredictionDrafter(prediction, len(PROMPT))


TWICE = [1, 2, 50, 51, 1, 2, 60, 61, 1, 2, 70, 71]


@pytest.mark.parametrize(
    ("prediction", "answer", "draft"),
    [
        pytest.param(PREDICTION, [*PREDICTION[:5], 7, 8, *PREDICTION[5:9]], [109, 110], id="inserted"),
        pytest.param(PREDICTION, [*PREDICTION[:5], *PREDICTION[7:9]], [109, 110], id="left out"),
        pytest.param(PREDICTION, [*PREDICTION[:5], 7, *PREDICTION[6:9]], [109, 110], id="replaced"),
        pytest.param(PREDICTION, [7, 8, 9, *PREDICTION[:9]], [109, 110], id="something in front"),
        pytest.param(PREDICTION, [*PREDICTION[:20], *PREDICTION[3:6]], [106, 107], id="only behind"),
        pytest.param(TWICE, [1, 2, 50, 8, 9, 1, 2], [60, 61], id="ahead before behind"),
    ],
)
def test_after_a_departure_two_equal_tokens_bring_it_back(prediction, answer, draft):
    source = drafter(prediction)
    proposals = [source.draft([*PROMPT, *answer[:n]], 2)[0] for n in range(len(answer) + 1)]
    assert proposals[-1] == draft


@pytest.mark.parametrize(
    ("prediction", "answer", "draft"),
    [
        pytest.param(
            [30, 31, 8, 1, 2, 50, 20, 21, 9, 1, 2, 60], [30, 31, 9, 1, 2], [60], id="not the nearer"
        ),
        pytest.param(PREDICTION, PREDICTION[:4], [104], id="as it began"),
    ],
)
def test_the_first_look_may_come_later_and_takes_the_longest_match(prediction, answer, draft):
    assert drafter(prediction).draft([*PROMPT, *answer], 1)[0] == draft


def test_asking_twice_gives_the_same():
    source = drafter()
    tokens = [*PROMPT, *PREDICTION[:4], 7, *PREDICTION[8:12]]
    assert source.draft(tokens, 5)[0] == source.draft(tokens, 5)[0] == PREDICTION[12:17]


def test_the_predictions_beginning_may_be_in_the_prompt():
    source = PredictionDrafter([5, 6, 7, 8], 2)
    assert source.draft([5, 6], 2)[0] == [5, 6]
    assert source.draft([5, 6, 7], 2)[0] == [8]


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


@given(FEW_PREDICTED, FEW_PREDICTED, st.integers(1, 20))
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


@given(FEW_PREDICTED, st.integers(1, 9))
def test_an_answer_that_is_the_prediction_is_followed_to_its_end(prediction, portion):
    source = drafter(prediction)
    for end in range(0, len(prediction), portion):
        assert source.draft([*PROMPT, *prediction[:end]], 5)[0] == prediction[end : end + 5]
