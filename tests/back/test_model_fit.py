"""The number of side branches that a back keeps for its draft model."""

import pytest

from back.model_fit import fitted
from back.settings import BackSettings
from tests.conftest import more


@pytest.mark.parametrize(
    ("architecture", "n_branches"), [("llama", 16), ("gemma3", 16), ("qwen35", 3), more("mamba2", 3)]
)
def test_a_recurrent_model_has_few_side_branches(tiny_model, architecture, n_branches):
    assert fitted(BackSettings(), tiny_model(architecture)).n_branches == n_branches


def test_fewer_that_were_asked_for_stay(tiny_model):
    assert fitted(BackSettings(n_branches=1), tiny_model("qwen35")).n_branches == 1
