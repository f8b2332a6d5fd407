import pytest

from bench.processes import start_lead
from shared.models.builtin import builtin_target
from shared.models.grow import Shape, grow
from tests.real.processes import LEAD


@pytest.fixture(scope="session")
def target(tmp_path_factory):
    """The shipped target at the cost of some milliseconds a step.

    Who else is in a batch and in the cache changes the last bits of a token's logits. In f32 they stay the
    last bits; weights in fewer bits round activations too, which now and then makes a visible difference of
    an invisible one, and a near-tie may then fall the other way.
    """
    path = tmp_path_factory.mktemp("models") / "target.gguf"
    grow(builtin_target(), path, Shape(width=640, n_layers=6, n_heads=20, n_feed_forward=1792), "f32")
    return path


@pytest.fixture(scope="session")
def served(target):
    """(lead, url), for tests that leave it as it was."""
    lead, url = start_lead("--model", str(target), *LEAD)
    with lead:
        yield lead, url


@pytest.fixture
def own_lead(target):
    """Starts leads that belong to one test: (lead, url)."""
    leads = []

    def start(*arguments):
        lead, url = start_lead("--model", str(target), *LEAD, *arguments)
        leads.append(lead)
        return lead, url

    yield start
    for lead in leads:
        lead.stop()
