"""A lead to examine."""

from tests.lead.conftest import lead, serve  # noqa: F401 - fixtures
