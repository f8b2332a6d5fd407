"""The `lead` program."""

import asyncio
import logging
import sys
from typing import NoReturn

import uvloop

from lead.server.server import Lead
from lead.settings.lead_settings import LeadSettings
from shared import cpus
from shared.diagnostics.verdict import end_with
from shared.errors import ConfigError
from shared.logs import configure_logging

log = logging.getLogger("lead")


def main(kind: type[LeadSettings] = LeadSettings) -> None:
    """Serve until a signal, as the command line says; exit status 1 if that cannot be done."""
    to_doctor = sys.argv[1:2] == ["doctor"]
    settings = kind.from_command_line(sys.argv[2:] if to_doctor else None)
    configure_logging(settings.log_level, as_json=settings.log_json)
    if to_doctor:
        _doctor(settings)
    if settings.check:
        _check(settings)
    try:
        if settings.cpus:
            cpus.pin(cpus.parse_cpus(settings.cpus))
        settings = settings.located()
        # A fifth of what a message costs the core that the engine wants.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Lead(settings).serve())
    except ConfigError as error:
        log.error("%s", error)  # noqa: TRY400 - a sentence for a person, not a trace
        sys.exit(1)


def _doctor(settings: LeadSettings) -> NoReturn:
    from lead.diagnostics.doctor import examine  # noqa: PLC0415  (as below)

    end_with(examine(settings))


def _check(settings: LeadSettings) -> NoReturn:
    from lead.diagnostics.check import check  # noqa: PLC0415  (no start needs it, nor the time to import it)

    end_with(check(settings))
