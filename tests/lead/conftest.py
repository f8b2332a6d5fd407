import pytest

from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target
from tests.lead.fakes import House
from tests.lead.serving import serving


@pytest.fixture(scope="session")
def vocabulary():
    return Vocabulary.load(builtin_target())


@pytest.fixture
async def house(vocabulary):
    return House(vocabulary)


@pytest.fixture
async def serve(house):
    """Starts servers around the house."""
    async with serving(house) as start:
        yield start
