"""Runs a lead in its own process, pinned to its cores, while it is measured."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future

import httpx
import uvloop

from lab.measuring.measured_answer import client
from lab.planning.pinned_process import pinned_process
from lead.server.server import Lead
from lead.settings.lead_settings import LeadSettings
from shared import cpus
from shared.diagnostics.lead_probe import LeadReport
from shared.errors import ConfigError
from shared.logs import configure_logging

_LOOK_SECONDS = 0.1
_SETTLE_SECONDS = 15.0
"""The time in which a new lead times its steps (`lead.engine.calibration`). A request would interrupt it."""
_JOIN_SECONDS = 60.0


@contextlib.contextmanager
def running_lead(settings: LeadSettings) -> Iterator[httpx.Client]:
    """Start a lead with its back that only this machine can reach, and yield a client once it is ready and
    settled.

    It ends with the context. The models in `settings` must be local files. Raises ConfigError, EngineError.
    """
    settings = settings.alone().model_copy(update={"port": _free_port()})
    cores = cpus.parse_cpus(settings.cpus) if settings.cpus and cpus.can_pin() else None
    with pinned_process(cores) as process, client(f"http://127.0.0.1:{settings.port}") as http:
        serving = process.submit(_serve, settings)
        _wait_until_ready(http, serving)
        time.sleep(_SETTLE_SECONDS)
        if settings.own_back.is_wanted:
            _wait_for_back(http)
        yield http


def report_of(http: httpx.Client) -> LeadReport | None:
    """Return the report of a lead; None if the server is not a lead or does not report."""
    try:
        return LeadReport.model_validate_json(http.get("/v1/speculation").raise_for_status().content)
    except (httpx.HTTPError, ValueError):
        return None


def _serve(settings: LeadSettings) -> None:
    """Serve until a signal."""
    configure_logging(settings.log_level, as_json=settings.log_json)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Lead(settings).serve())


def _wait_until_ready(http: httpx.Client, serving: "Future[None]") -> None:
    while not serving.done():
        with contextlib.suppress(httpx.TransportError):
            if http.get("/health").is_success:
                return
        time.sleep(_LOOK_SECONDS)
    serving.result()
    raise ConfigError("the lead ended before it was ready")


def _wait_for_back(http: httpx.Client) -> None:
    until = time.monotonic() + _JOIN_SECONDS
    while time.monotonic() < until:
        if (report := report_of(http)) and report.backs:
            return
        time.sleep(_LOOK_SECONDS)
    raise ConfigError(
        f"the back has not joined within {_JOIN_SECONDS:.0f} s. Check that its model can draft for the lead"
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
