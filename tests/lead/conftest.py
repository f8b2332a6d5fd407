import pytest

from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target
from tests.lead.fakes import ScriptedLead
from tests.lead.serving import serving


@pytest.fixture(scope="session")
def vocabulary():
    return Vocabulary.load(builtin_target())


@pytest.fixture
async def lead(vocabulary):
    return ScriptedLead(vocabulary)


@pytest.fixture
async def serve(lead):
    """Starts servers around the lead."""
    async with serving(lead) as start:
        yield start
