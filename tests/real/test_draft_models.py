"""Draft models of other kinds change no text: another vocabulary, in a back or in the engine, and EAGLE-3."""

import gguf
import pytest

from tests.real.client import ask, ask_until_accepted, get, planner
from tests.real.processes import back_of
from tests.shuffled_model import write_shuffled
from tests.tiny_eagle import write_tiny_eagle

pytestmark = pytest.mark.real

SAMPLINGS = [{"temperature": 0}, {"temperature": 0.8, "seed": 7}]


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory):
    return write_shuffled(tmp_path_factory.mktemp("models") / "shuffled.gguf")


def test_its_drafts_are_accepted_and_change_no_text(own_lead, shuffled):
    """The lead waits for drafts. On a busy machine they would be too late for so small a target."""
    lead, url = own_lead("--policy", "sync", "--depth", "3")
    texts = [ask(url, **sampling).text for sampling in SAMPLINGS]
    with back_of(lead, url, "foreign", "--model", str(shuffled)) as back:
        back.wait_for("translating: .* have different tokenizers")
        assert [ask_until_accepted(url, **sampling).text for sampling in SAMPLINGS] == texts


def test_it_may_draft_inside_the_engine(served, own_lead, shuffled):
    """It need not pay with so small a target."""
    _, url = own_lead("--draft-model", str(shuffled), "--policy", "fixed", "--depth", "3")
    reply = ask(url, temperature=0.8, seed=7)
    assert reply.text == ask(served[1], temperature=0.8, seed=7).text
    assert reply.n_accepted > 0


def test_an_eagle_drafter_changes_no_text(served, own_lead, target, tmp_path):
    width = gguf.GGUFReader(target).fields["llama.embedding_length"].contents()
    eagle = write_tiny_eagle(tmp_path / "eagle.gguf", target_width=width, own=True)
    policy = ("--policy", "fixed", "--depth", "2")
    lead, url = own_lead("--draft-model", str(eagle), *policy)
    lead.wait_for("drafting with an EAGLE-3 drafter, .* memory: .* for weights")
    for sampling in SAMPLINGS:
        assert ask(url, **sampling).text == ask(served[1], **sampling).text
    assert planner(url)["sources"]["draft_model"]["n_scored"] > 0
    assert get(url, "/props")["draft_model"]
