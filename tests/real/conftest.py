import pytest

from bench.processes import start_lead
from shared.models.builtin import builtin_target
from shared.models.grow import Shape, grow
from tests.real.processes import LEAD


@pytest.fixture(scope="session")
def target(tmp_path_factory):
    """The shipped target, grown so that a step takes some milliseconds and drafts arrive in time.

    Other sequences in the batch and in the cache change the last bits of a token's logits. Quantized weights
    round activations, too, and may amplify such a difference until another token is chosen; f32 does not.
    """
    path = tmp_path_factory.mktemp("models") / "target.gguf"
    grow(builtin_target(), path, Shape(width=480, n_layers=6, n_heads=14, n_feed_forward=1344), "f32")
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
