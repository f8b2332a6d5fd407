"""What is recorded of the shipped pair is what the two models say, and the simulation replays it."""

from bench.acceptance import positions
from bench.model_pair import ModelPair
from bench.prompts import draw
from bench.simulation.recorded_text import KINDS, KnowingText, PairRecorder, RecordedPosition, RecordedText
from lead.simulation.cell import Cell, simulate
from lead.simulation.simulated_back import BackSpec
from lead.simulation.step_table import StepTable
from lead.simulation.text import DraftSkill
from shared.models.builtin import builtin_draft, builtin_target
from shared.sampling.parameters import SamplingParameters

SKILL = DraftSkill(0.5)
RIGHT = RecordedPosition((True, False, False), (0.7, 0.2, 0.05))
SECOND = RecordedPosition((False, True, False), (0.6, 0.3, 0.05), ((0.8, 0.1, 0.1),))


def test_a_guess_is_right_where_the_draft_model_was():
    text = RecordedText([RIGHT, SECOND])
    assert [each.token == text.token(1) for each in text.guesses(SKILL, 1)] == [True, False, False]
    assert [each.token == text.token(2) for each in text.guesses(SKILL, 2)] == [False, True, False]
    assert [each.confidence for each in text.guesses(SKILL, 2)] == [0.6, 0.3, 0.05]


def test_behind_a_wrong_token_nothing_is_right_and_the_confidences_are_those_of_such_places():
    text = RecordedText([RIGHT, SECOND])
    guesses = text.astray(SKILL, 1)
    assert text.token(1) not in [each.token for each in guesses]
    assert [each.confidence for each in guesses] == [0.8, 0.1, 0.1]


def test_who_knows_is_sure_of_what_is_right_and_of_nothing_else():
    text = KnowingText([RIGHT, SECOND])
    assert [each.confidence for each in text.guesses(SKILL, 1)] == [0.999, 0.001, 0.001]
    assert [each.confidence for each in text.guesses(SKILL, 2)] == [0.001, 0.999, 0.001]


def test_recorded_is_whether_the_coupled_choices_agree():
    (recorded, *_) = PairRecorder(builtin_target(), builtin_draft()).record(1.0, 1, 24)
    (prompt,) = draw(KINDS[:1], 1, seed=1)
    parameters = SamplingParameters(seed=prompt.seed, temperature=1.0, top_k=0, top_p=1, min_p=0)
    expected = positions(ModelPair(builtin_target(), builtin_draft()), prompt.text, parameters, 24)
    assert [each.right[0] for each in recorded] == [each.coupled for each in expected]
    assert all(bool(each.astray) != each.right[0] for each in recorded)


def test_a_cell_can_be_given_its_texts():
    steps = StepTable.of_milliseconds("flat", {1: 50, 16: 50})
    cell = Cell(steps, (BackSpec(0.001),), n_tokens=128, texts=(RecordedText([RIGHT] * 60),))
    assert simulate(cell, "sync", 3).accepted_share > 0.9
