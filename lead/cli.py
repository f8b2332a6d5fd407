"""The `lead` program: `run`, `check`, `convert`, `generate`, `plan`, `doctor` and `rpc-worker`."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import NoReturn

import uvloop

from lead.server.server import Lead
from lead.settings.lead_settings import LeadSettings
from shared import cpus, descriptors
from shared.diagnostics.findings import exit_with
from shared.errors import ConfigError, EngineError
from shared.logs import configure_logging

log = logging.getLogger("lead")

_FAILED = 3
"""Exit status if a restart may help, as the back's, in contrast to 1 (wrong settings) and argparse's 2."""
_FEW_FILES = 256
"""A limit below which connections are closed in ordinary use. A lead alone has about 25 files open."""


def main(kind: type[LeadSettings] = LeadSettings) -> None:
    """Run the lead or a subcommand, or report with --check or `doctor`."""
    if program := _SUBCOMMANDS.get(next(iter(sys.argv[1:]), "")):
        program(sys.argv[2:])
        return
    is_doctor = sys.argv[1:2] == ["doctor"]
    settings = kind.from_command_line(sys.argv[2:] if is_doctor else None)
    configure_logging(settings.log_level, as_json=settings.log_json)
    if is_doctor:
        doctor(settings)
    if settings.check:
        check(settings)
    run(settings)


def run(settings: LeadSettings) -> None:
    """Serve until a signal. Exits with 1 if the settings must be changed, with 3 on other failures."""
    try:
        _raise_limit()
        if settings.cpus:
            cpus.pin(cpus.parse_cpus(settings.cpus))
        settings = settings.located()
        # With uvloop a message costs a fifth of the time on the core that the engine needs.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Lead(settings).serve())
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
        log.warning("this process may have only %d files open, too few for many connections: ulimit -n", n)


def check(settings: LeadSettings) -> NoReturn:
    """Report what would be served, and exit."""
    from lead.diagnostics import check  # noqa: PLC0415 - keeps the start fast

    exit_with(check.check(settings))


def convert(arguments: Sequence[str]) -> None:
    """Write a GGUF file; exits with status 1 if it cannot."""
    from lead import convert as program  # noqa: PLC0415 - keeps the start fast

    program.main(arguments)


def doctor(settings: LeadSettings) -> NoReturn:
    """Report why the running lead is not faster, and exit."""
    from lead.diagnostics import doctor  # noqa: PLC0415 - keeps the start fast

    exit_with(doctor.diagnose(settings))


def generate(arguments: Sequence[str]) -> None:
    """Continue one text; exits with status 1 if that cannot be done."""
    from lead.generate import program  # noqa: PLC0415 - keeps the start fast

    program.main(arguments)


def plan(arguments: Sequence[str]) -> None:
    """Say which arrangement of the models is fastest here; exits with status 1 if that cannot be measured."""
    from lead.planning import plan_program  # noqa: PLC0415 - keeps the start fast

    plan_program.main(arguments)


def rpc_worker(arguments: Sequence[str]) -> None:
    """Compute layers for a lead on another machine."""
    from lead import rpc_worker as program  # noqa: PLC0415 - keeps the start fast

    program.main(arguments)


_SUBCOMMANDS = {"convert": convert, "generate": generate, "plan": plan, "rpc-worker": rpc_worker}
