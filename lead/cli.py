"""The `lead` program: serving, `--check`, `doctor`, and the subcommands below."""

import asyncio
import importlib
import logging
import sys
from typing import TYPE_CHECKING, Protocol

from lead.settings.lead_settings import LeadSettings
from shared import cpus, descriptors
from shared.diagnostics.findings import exit_with
from shared.errors import ConfigError, EngineError
from shared.exits import raise_interrupts
from shared.logs import configure_logging

if TYPE_CHECKING:
    from lead.server.routed import RoutedBy

log = logging.getLogger("lead")

_FAILED = 3
"""Exit status if a restart may help, as the back's, in contrast to 1 (wrong settings) and argparse's 2."""
_FEW_FILES = 256
"""A limit below which connections are closed in ordinary use. A lead alone has about 25 files open."""


SUBCOMMANDS = {
    "bench": "lead.benchmark.bench_program",
    "cache": "lead.cache_program",
    "convert": "lead.convert",
    "generate": "lead.generate.program",
    "invite": "lead.invite",
    "models": "lead.models.models_program",
    "plan": "lead.planning.plan_program",
    "rpc-worker": "lead.rpc_worker",
    "service": "lead.service",
}
"""Modules with a `main` that takes the arguments. Imported only when they are run: the lead starts faster."""


def main(kind: type[LeadSettings] = LeadSettings) -> None:
    """Run the lead or a subcommand, or report with --check or `doctor`."""
    if program := SUBCOMMANDS.get(next(iter(sys.argv[1:]), "")):
        module = importlib.import_module(program)
        raise_interrupts()
        module.main(sys.argv[2:])
        return
    is_doctor = sys.argv[1:2] == ["doctor"]
    settings = kind.from_command_line(sys.argv[2:] if is_doctor else None)
    configure_logging(settings.log_level, as_json=settings.log_json)
    if settings.list_devices or settings.check:
        from lead.diagnostics.check import exit_with_report  # noqa: PLC0415 - the lead starts faster

        exit_with_report(settings)
    if is_doctor:
        from lead.diagnostics.doctor import diagnose  # noqa: PLC0415 - as above

        exit_with(diagnose(settings))
    run(settings)


def run(settings: LeadSettings, routed: "RoutedBy | None" = None) -> None:
    """Serve until a signal. Exits with 1 if the settings must be changed, with 3 on other failures.

    routed: serve one model for a router.
    """
    try:
        _raise_limit()
        if settings.cpus:
            cpus.pin(cpus.parse_cpus(settings.cpus))
        import uvloop  # noqa: PLC0415 - as above

        # With uvloop a message costs a fifth of the time on the core that the engine needs.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_server(settings, routed).serve())
    except ConfigError as error:
        log.error("%s", error)  # noqa: TRY400 - a sentence for a person, not a trace
        sys.exit(1)
    except EngineError as error:
        log.error("%s", error)  # noqa: TRY400 - as above
        sys.exit(_FAILED)
    except Exception:
        log.exception("the lead failed")
        sys.exit(_FAILED)


class Serving(Protocol):
    async def serve(self) -> None:
        """Run until a signal ends it."""


def _server(settings: LeadSettings, routed: "RoutedBy | None") -> Serving:
    """A lead with one model, or a router to one of each; raises ConfigError."""
    if settings.served.models_dir is not None:
        from lead.models.router import Router  # noqa: PLC0415 - as above

        return Router(settings)
    from lead.server.server import Lead  # noqa: PLC0415 - as above

    return Lead(settings.located(), routed)


def _raise_limit() -> None:
    if (n := descriptors.raise_limit()) < _FEW_FILES:
        log.warning("this process may have only %d files open, too few for many connections: ulimit -n", n)
