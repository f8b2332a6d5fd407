"""A lead with a scripted engine behind a real socket, for clients of other projects."""

import pytest

from tests.lead.fakes import ScriptedLead
from tests.lead.serving import serving


@pytest.fixture
async def lead(vocabulary):
    lead = ScriptedLead(vocabulary)
    lead.engine.ready = lead.engine.ready.model_copy(update={"n_ctx": 4096, "n_ctx_sequence": 4096})
    return lead


@pytest.fixture
async def url(lead):
    async with serving(lead) as start:
        yield f"http://127.0.0.1:{start().port}"
