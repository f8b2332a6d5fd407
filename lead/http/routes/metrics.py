"""`GET /metrics`: figures for Prometheus."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from lead.metrics.metrics import CONTENT_TYPE
from lead.server.services import Services, provide
from shared.errors import UnsupportedError

router = APIRouter()

_ENGINE_SECONDS = 1.0
"""An engine in a long step is not waited for; what it said last is shown."""


@router.get("/metrics")
async def metrics(services: Annotated[Services, Depends(provide)]) -> Response:
    """Prometheus' text format; switched off unless the lead was started with --metrics."""
    if services.metrics is None:
        raise UnsupportedError("This server does not support metrics endpoint. Start it with `--metrics`")
    report = None
    try:
        async with asyncio.timeout(_ENGINE_SECONDS):
            report = await services.engine.explain()
    except TimeoutError:
        pass
    response = Response(services.metrics.show(report), media_type=CONTENT_TYPE)
    # Spelled as llama-server does; `headers` would write it in small letters.
    response.raw_headers.append((b"Process-Start-Time-Unix", str(services.started_at).encode()))
    return response
