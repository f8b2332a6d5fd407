import httpx
import pytest


@pytest.fixture
async def client(house):
    transport = httpx.ASGITransport(app=house.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://lead") as client:
        yield client
