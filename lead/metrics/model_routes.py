"""`GET /metrics`, for Prometheus. No text is shown."""

import asyncio
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from lead.engine_client.occupancy import Occupancy
from lead.http.services import Services, get_services
from lead.http.side_models import side_models
from lead.metrics.side_routes import SWITCHED_OFF
from shared.errors import UnsupportedError

if TYPE_CHECKING:  # see `opened`
    from lead.metrics.exporter import MetricsExporter

router = APIRouter()

_ENGINE_TIMEOUT = 1.0
"""The maximum wait for the engine's report. Without the report, the previous values are shown."""


@router.get("/metrics")
async def metrics(request: Request, services: Annotated[Services, Depends(get_services)]) -> Response:
    """Return the metrics in Prometheus' text format. Disabled unless the lead was started with --metrics."""
    exporter: MetricsExporter | None = request.app.state.metrics
    if exporter is None:
        raise UnsupportedError(SWITCHED_OFF)
    report = None
    try:
        async with asyncio.timeout(_ENGINE_TIMEOUT):
            report = await services.explain()
    except TimeoutError:
        pass
    ready = services.engine.ready
    occupancy = Occupancy.of(services.sequences, ready) if ready else None
    text = exporter.export(report, occupancy, side_models(request.app))
    response = Response(text, media_type=exporter.content_type)
    # Spelled like llama-server's; `headers` would write it in lower case.
    response.raw_headers.append((b"Process-Start-Time-Unix", str(services.started_at).encode()))
    return response
