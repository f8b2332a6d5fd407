import pytest

from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target


@pytest.fixture(scope="session")
def vocabulary():
    return Vocabulary.load(builtin_target())
