"""`GET /metrics` for Prometheus."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from lead.generation.occupancy import Occupancy
from lead.metrics.exporter import CONTENT_TYPE
from lead.server.services import Services, get_services
from shared.errors import UnsupportedError

router = APIRouter()

_ENGINE_SECONDS = 1.0
"""If the engine takes longer, its previous values are shown."""


@router.get("/metrics")
async def metrics(services: Annotated[Services, Depends(get_services)]) -> Response:
    """Prometheus' text format; switched off unless the lead was started with --metrics."""
    if services.metrics is None:
        raise UnsupportedError("This server does not support metrics endpoint. Start it with `--metrics`")
    report = None
    try:
        async with asyncio.timeout(_ENGINE_SECONDS):
            report = await services.engine.explain()
    except TimeoutError:
        pass
    ready = services.engine.ready
    occupancy = Occupancy.of(services.sequences, ready) if ready else None
    response = Response(services.metrics.export(report, occupancy), media_type=CONTENT_TYPE)
    # Spelled like llama-server's; `headers` would write it in lower case.
    response.raw_headers.append((b"Process-Start-Time-Unix", str(services.started_at).encode()))
    return response
