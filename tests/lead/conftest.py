import pytest

from shared.sampling.grammar import GrammarMatcher
from tests.lead.fakes import ScriptedLead
from tests.lead.serving import serving


@pytest.fixture
async def lead(vocabulary):
    return ScriptedLead(vocabulary)


@pytest.fixture
async def serve(lead):
    """Starts servers around the lead."""
    async with serving(lead) as start:
        yield start


@pytest.fixture(scope="session")
def accepts(vocabulary):
    """Whether a model may write this text under this grammar, and end there."""

    def accepts(grammar: str, text: str) -> bool:
        matcher = GrammarMatcher(grammar, vocabulary)
        tokens = vocabulary.tokenize(text, add_special=False, parse_special=True)
        return all(matcher.accept(token) for token in tokens) and matcher.allows(min(vocabulary.end_tokens))

    return accepts
