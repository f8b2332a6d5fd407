"""A policy is put into force only if a text keeps its bits under it."""

import pytest

from shared.llama.model import Model
from shared.llama.width_policy import RESERVE, WidthPolicy
from shared.llama.width_probe import measure_widths
from shared.llama.width_rehearsal import rehearse
from shared.models.builtin import builtin_target
from shared.settings.model_options import ModelOptions


@pytest.fixture(scope="module")
def separate():
    options = ModelOptions(ctx_size=1024, parallel=2, threads=1, kv_unified=False)
    model = Model(builtin_target(), options, n_reserve=RESERVE)
    yield model
    model.close()


def test_measured_widths_keep_the_bits(separate):
    policy = measure_widths(separate, 0.1).policy()
    assert rehearse(separate, policy) == policy
    assert separate.widths == policy
    separate.widths = None


def test_widths_that_do_not_agree_are_refused(separate):
    assert rehearse(separate, WidthPolicy((1, 2, 3, 4, 6, 8), (1, 2, 4, 8, 16))) is None
    assert separate.widths is None
