"""Fixtures for tests of the backs."""

import pytest

from tests.lead.backs.harness import RegistryHarness


@pytest.fixture
def harness():
    return RegistryHarness()
