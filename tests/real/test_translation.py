"""A model with another vocabulary drafts for the lead all the same, in a back or in the engine."""

import pytest

from tests.real.client import ask, ask_until_accepted
from tests.real.processes import back_of
from tests.shuffled_model import write_shuffled

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory):
    return write_shuffled(tmp_path_factory.mktemp("models") / "shuffled.gguf")


def test_its_drafts_are_accepted_and_change_no_text(served, shuffled):
    lead, url = served
    samplings = [{"temperature": 0}, {"temperature": 0.8, "seed": 7}]
    texts = [ask(url, **sampling).text for sampling in samplings]
    with back_of(lead, url, "foreign", "--model", str(shuffled)) as back:
        back.wait_for("translating: .* has another tokenizer")
        assert [ask_until_accepted(url, **sampling).text for sampling in samplings] == texts


def test_it_may_draft_inside_the_engine(served, own_lead, shuffled):
    """Whether that pays with so small a target is not the question here."""
    _, url = own_lead("--draft-model", str(shuffled), "--policy", "fixed", "--depth", "3")
    reply = ask(url, temperature=0.8, seed=7)
    assert reply.text == ask(served[1], temperature=0.8, seed=7).text
    assert reply.n_accepted > 0
