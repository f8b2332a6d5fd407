"""Routers read how busy a lead is."""

import pytest

from lead.engine.client import EngineState
from lead.engine.events import Started
from shared.sampling.parameters import SamplingParameters


def begin(lead, n_tokens, *, runs):
    sequence = lead.sequences.create([3] * n_tokens, SamplingParameters(seed=1))
    if runs:
        lead.sequences.apply(Started(sequence=sequence.id, n_cached=0), 1.0)


@pytest.mark.parametrize("path", ["/loads", "/v1/loads"])
async def test_running_and_waiting_requests_are_counted_with_their_tokens(lead, client, path):
    begin(lead, 30, runs=True)
    begin(lead, 12, runs=True)
    begin(lead, 7, runs=False)
    body = (await client.get(path)).json()
    ready = lead.engine.ready
    assert body["dp_rank_count"] == 1
    assert body["loads"] == [
        {
            "dp_rank": 0,
            "num_running_reqs": 2,
            "num_waiting_reqs": 1,
            "num_used_tokens": 42,
            "num_total_tokens": 49,
            "max_total_num_tokens": ready.n_ctx,
            "token_usage": round(42 / ready.n_ctx, 4),
            "max_running_requests": ready.n_slots,
        }
    ]
    assert body["aggregate"]["total_reqs"] == 3


async def test_before_the_engine_is_ready_a_router_gets_503(lead, client):
    lead.engine.state = EngineState.STARTING
    assert (await client.get("/loads")).status_code == 503
