"""`GET /loads` for routers, in the shape of SGLang's `/v1/loads`."""

import importlib.metadata
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from lead.generation.occupancy import Occupancy
from lead.server.services import Services, get_ready_services

router = APIRouter()


@router.get("/loads")
@router.get("/v1/loads")
async def loads(
    request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> dict[str, Any]:
    """How busy this lead is, as one data-parallel rank; no text, and nothing of single clients."""
    assert services.engine.ready
    load = Occupancy.of(services.sequences, services.engine.ready)
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": importlib.metadata.version("llama-duo"),
        "dp_rank_count": 1,
        "draining": request.app.state.is_leaving,
        "loads": [
            {
                "dp_rank": 0,
                "num_running_reqs": load.n_running,
                "num_waiting_reqs": load.n_waiting,
                "num_used_tokens": load.n_used_tokens,
                "num_total_tokens": load.n_used_tokens + load.n_waiting_tokens,
                "max_total_num_tokens": load.n_ctx,
                "token_usage": round(load.kv_usage, 4),
                "max_running_requests": load.n_slots,
            }
        ],
        "aggregate": {
            "total_running_reqs": load.n_running,
            "total_waiting_reqs": load.n_waiting,
            "total_reqs": load.n_running + load.n_waiting,
            "avg_token_usage": round(load.kv_usage, 4),
        },
    }
