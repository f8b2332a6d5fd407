"""The `lead` program: serving, `--check`, `doctor`, and the subcommands below."""

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable
from typing import Protocol, cast

from lead.habits import translated
from lead.rings.table import RINGS
from lead.settings.lead_settings import DoctorSettings, LeadSettings
from shared import cpus, descriptors
from shared.diagnostics.findings import exit_with
from shared.errors import ConfigError, EngineError
from shared.exits import raise_interrupts
from shared.logs import configure_logging
from shared.program_start import import_program
from shared.seams import plugged

log = logging.getLogger("lead")

_FAILED = 3
"""The exit status if a restart may help; the back uses it, too. Wrong settings give 1, or argparse's 2."""
_FEW_FILES = 256
"""With a limit on open files below this number, connections are closed in ordinary use. A lead without
connections has about 25 files open.
"""

_DOCTOR = "doctor"
SUBCOMMANDS = {
    "bench": "lab.measuring.bench_program",
    "cache": "lead.disk_cache.cache_program",
    "convert": "lead.convert.convert_program",
    "generate": "lead.generate.program",
    "invite": "lead.pairing.invite",
    "models": "lead.router.models_program",
    "plan": "lab.planning.plan_program",
    "rpc-worker": "lead.rpc.rpc_worker",
    "service": "lead.os_service.lead_service",
    "uninstall": "lead.os_service.uninstall_program",
}
"""Modules with a `main` that takes the arguments. They are imported only when run, so the lead starts faster.
"""


def main(kind: type[LeadSettings] = LeadSettings) -> None:
    """Run the lead or a subcommand, or print the report of --check or `doctor`."""
    arguments = translated(sys.argv[1:], {*SUBCOMMANDS, _DOCTOR})
    if program := SUBCOMMANDS.get(next(iter(arguments), "")):
        module = importlib.import_module(program)
        raise_interrupts()
        module.main(arguments[1:])
        return
    is_doctor = arguments[:1] == [_DOCTOR]
    settings = (
        DoctorSettings.from_command_line(arguments[1:]) if is_doctor else kind.from_command_line(arguments)
    )
    configure_logging(settings.log_level, as_json=settings.log_json)
    if settings.list_devices or settings.check:
        from lead.diagnostics.check import exit_with_report  # noqa: PLC0415 - the lead starts faster

        exit_with_report(settings)
    if is_doctor:
        from lab.doctor.lead_doctor import diagnose  # noqa: PLC0415 - as above

        exit_with(diagnose(settings))
    run(settings)


class Serving(Protocol):
    async def serve(self) -> None:
        """Serve until a signal arrives."""


def serving(settings: LeadSettings, routed: object = None) -> Serving:
    """Make the program to run: a lead, unless the settings ask for a router or a lead for embeddings.

    Downloads or converts the model if necessary. routed: the router's data for a lead that serves one of its
    models. Raises ConfigError.
    """
    if settings.source.hf_repo:  # the model's file decides which program serves it
        settings = settings.with_model()
    for module in plugged(RINGS, "kind"):
        if program := module.kind(settings, routed):
            return cast(Serving, program)
    server = import_program("lead.server.server")  # as above
    return cast(Serving, server.Lead(settings.located(), routed))


def run(settings: LeadSettings, program: Callable[[LeadSettings], Serving] = serving) -> None:
    """Serve until a signal. Exits with status 1 if the settings must be changed, with 3 on other failures.

    program: serves requests; it raises ConfigError.
    """
    try:
        _raise_limit()
        if settings.cpus:
            cpus.pin(cpus.parse_cpus(settings.cpus))
        import uvloop  # noqa: PLC0415 - as above

        # With uvloop a message costs a fifth of the time on the core that the engine needs.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(program(settings).serve())
    except ConfigError as error:
        log.error("%s", error)  # noqa: TRY400 - a sentence for a person, not a trace
        sys.exit(1)
    except EngineError as error:
        log.error("%s", error)  # noqa: TRY400 - as above
        sys.exit(_FAILED)
    except Exception:
        log.exception("the lead failed")
        sys.exit(_FAILED)


def _raise_limit() -> None:
    if (n := descriptors.raise_limit()) < _FEW_FILES:
        log.warning("the limit on open files is %d, too low for many connections. Raise it with ulimit -n", n)
