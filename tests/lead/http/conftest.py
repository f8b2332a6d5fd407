import pytest

from tests.lead.http.event_streams import client_of


@pytest.fixture
async def client(lead):
    async with client_of(lead.app) as client:
        yield client


@pytest.fixture
def room(lead):
    """A longer context: descriptions of tools take some of it."""
    lead.engine.ready = lead.engine.ready.model_copy(update={"n_ctx": 4096, "n_ctx_sequence": 4096})
