"""`GET /metrics` of a lead without a text model."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from lead.http.side_models import side_models
from shared.errors import UnsupportedError

router = APIRouter()

SWITCHED_OFF = "This server does not support metrics endpoint. Start it with `--metrics`"


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text format. Disabled unless the lead was started with --metrics."""
    if not request.app.state.has_metrics:
        raise UnsupportedError(SWITCHED_OFF)
    from lead.metrics.side_metrics import CONTENT_TYPE, export_sides  # noqa: PLC0415 - the lead starts faster

    return Response(export_sides(side_models(request.app)), media_type=CONTENT_TYPE)
