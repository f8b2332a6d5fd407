import httpx
import pytest


@pytest.fixture
async def client(lead):
    transport = httpx.ASGITransport(app=lead.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://lead") as client:
        yield client


@pytest.fixture
def room(lead):
    """A longer context: descriptions of tools take some of it."""
    lead.engine.ready = lead.engine.ready.model_copy(update={"n_ctx": 4096, "n_ctx_sequence": 4096})
