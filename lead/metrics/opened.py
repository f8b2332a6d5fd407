"""The ring's module for the seam `opened`: with `--metrics`, counts from the first request on."""

from fastapi import FastAPI

from lead.http.services import Services


def opened(app: FastAPI, services: Services) -> None:
    app.state.metrics = None
    if services.settings.metrics:
        from lead.metrics.exporter import MetricsExporter  # noqa: PLC0415 - the lead starts faster

        app.state.metrics = MetricsExporter(services.sequences, services.backs)
