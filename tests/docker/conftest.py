import pytest

from shared.builtin import builtin_target
from shared.llama.vocabulary import Vocabulary


@pytest.fixture(scope="session")
def vocabulary():
    return Vocabulary.load(builtin_target())
