import pytest

from shared.builtin import builtin_target
from shared.llama.vocabulary import Vocabulary
from tests.lead.fakes import House


@pytest.fixture(scope="session")
def vocabulary():
    return Vocabulary.load(builtin_target())


@pytest.fixture
async def house(vocabulary):
    return House(vocabulary)
