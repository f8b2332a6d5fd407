"""Simulated text, and the guesses of draft models."""

import pytest

from lab.simulation.text import DraftSkill, Text

N = 4000


def right(text, skill):
    return [text.guesses(skill, i)[0].token == text.token(i) for i in range(text.n_tokens)]


@pytest.mark.parametrize("acceptance", [0.3, 0.6, 0.85])
def test_as_many_guesses_are_right_as_the_skill_says(acceptance):
    assert sum(right(Text(N, 1), DraftSkill(acceptance))) / N == pytest.approx(acceptance, abs=0.03)


def test_of_confident_guesses_more_are_right():
    text, skill = Text(N, 2), DraftSkill(0.7)
    by_confidence = sorted(range(N), key=lambda i: text.guesses(skill, i)[0].confidence)
    is_right = right(text, skill)
    shares = [
        sum(is_right[i] for i in part) / len(part) for part in (by_confidence[:500], by_confidence[-500:])
    ]
    assert shares[0] < 0.45
    assert shares[1] > 0.9


def test_different_models_find_the_same_positions_hard():
    text = Text(N, 4)
    one, other = right(text, DraftSkill(0.7)), right(text, DraftSkill(0.7, 1))
    both = sum(a and b for a, b in zip(one, other, strict=True)) / N
    assert 0.7 * 0.7 + 0.05 < both < 0.7


def test_some_recovered_tokens_are_the_runner_up():
    text, skill = Text(N, 5), DraftSkill(0.6)
    wrong = [i for i, is_right in enumerate(right(text, skill)) if not is_right]
    covered = sum(text.guesses(skill, i)[1].token == text.token(i) for i in wrong)
    assert covered / len(wrong) == pytest.approx(0.28, abs=0.04)


def test_of_a_longer_recall_each_rank_has_its_share():
    text, skill = Text(N, 5), DraftSkill(0.6, recall=(0.4, 0.2, 0.1, 0.05))
    wrong = [i for i, is_right in enumerate(right(text, skill)) if not is_right]
    choices = [[each.token for each in text.guesses(skill, i)] for i in range(N)]
    shares = [sum(choices[i][rank] == text.token(i) for i in wrong) / len(wrong) for rank in range(1, 5)]
    assert shares == pytest.approx(list(skill.recall), abs=0.04)


def test_a_liar_is_sure_and_always_wrong():
    text, liar = Text(N, 6), DraftSkill(0.8, honest=False)
    assert not any(right(text, liar))
    assert sum(text.guesses(liar, i)[0].confidence for i in range(N)) / N > 0.7


def test_after_a_wrong_token_all_are_wrong():
    text, skill = Text(N, 7), DraftSkill(0.9)
    assert all(guess.token != text.token(i) for i in range(N) for guess in text.astray(skill, i))


def test_guesses_depend_on_text_and_model_alone():
    cases = (1, 0), (1, 0), (2, 0), (1, 1)
    guesses = [[Text(100, seed).guesses(DraftSkill(0.7, number), 50)] for seed, number in cases]
    assert guesses[0] == guesses[1]
    assert guesses[0] not in guesses[2:]
