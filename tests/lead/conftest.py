import pytest

from shared.sampling.grammar import GrammarMatcher
from tests.lead.fakes import ScriptedLead
from tests.lead.http.event_streams import client_of
from tests.lead.serving import serving


class Clock:
    """A clock that stands still until a test moves it."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def lead(vocabulary):
    return ScriptedLead(vocabulary)


@pytest.fixture
async def serve(lead):
    """Starts servers around the lead."""
    async with serving(lead) as start:
        yield start


@pytest.fixture
async def client(lead):
    async with client_of(lead.app) as client:
        yield client


@pytest.fixture
def room(lead):
    """Lengthen the context: descriptions of tools take a part of it."""
    lead.engine.ready = lead.engine.ready.model_copy(update={"n_ctx": 4096, "n_ctx_sequence": 4096})


@pytest.fixture(scope="session")
def accepts(vocabulary):
    """Return whether a model may write this text under this grammar and end there."""

    def accepts(grammar: str, text: str) -> bool:
        matcher = GrammarMatcher(grammar, vocabulary)
        tokens = vocabulary.tokenize(text, add_special=False, parse_special=True)
        return all(matcher.accept(token) for token in tokens) and matcher.allows(min(vocabulary.end_tokens))

    return accepts
