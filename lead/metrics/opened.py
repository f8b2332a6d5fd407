"""Counts from the first request on, with `--metrics`."""

from fastapi import FastAPI

from lead.http.services import Services
from lead.metrics.exporter import MetricsExporter


def opened(app: FastAPI, services: Services) -> None:
    is_wanted = services.settings.metrics
    app.state.metrics = MetricsExporter(services.sequences, services.backs) if is_wanted else None
