"""The engine's loop with a tiny model and simulated backs."""

import pytest

from bench.timed_engine import DraftingParts, TimedEngine
from lead.heads.inline_source import InlineMtp
from lead.simulation.simulated_back import BackSpec
from lead.simulation.text import DraftSkill
from shared.heads.hidden_sources import NextnStates
from shared.heads.mtp_heads import open_heads
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions

HEADS = DraftSkill(0.9)
BACK = BackSpec(0.0001, 0.0001, DraftSkill(0.9, 1), message_s=0.0)


@pytest.fixture(scope="module")
def opened(tiny_with_heads):
    model = Model(
        plan_memory(
            tiny_with_heads("qwen35"), ModelOptions(threads=1, ctx_size=256, parallel=1), with_heads=True
        )
    )
    heads = open_heads(model)
    yield model, InlineMtp(model, heads, NextnStates(model), n_max=0, n_slots=1)
    heads.close()
    model.close()


def sources(engine):
    return set(engine.describe()["sources"])


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (DraftingParts(), set()),
        (DraftingParts(HEADS), {"mtp"}),
        (DraftingParts(backs=(BACK,)), {"back-0"}),
        (DraftingParts(HEADS, (BACK,)), {"mtp", "back-0"}),
    ],
)
def test_those_draft_that_should(opened, parts, expected):
    engine = TimedEngine(*opened, parts)
    engine.calibrate()
    for number in range(6):
        assert engine.write(number, 60) > 0
    assert sources(engine) == expected
