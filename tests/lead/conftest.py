import pytest

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
