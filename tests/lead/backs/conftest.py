"""What tests of the backs share."""

import pytest

from tests.lead.backs.harness import RegistryHarness


@pytest.fixture
def harness():
    return RegistryHarness()
