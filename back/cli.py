"""The `back` program: drafting, `--check`, `doctor` and the subcommand `service`; sets the exit status."""

import logging
import sys

from back.settings import BackDoctorSettings, BackSettings
from shared.diagnostics.findings import exit_with
from shared.errors import ConfigError
from shared.exits import print_text
from shared.logs import configure_logging
from shared.program_start import import_program

log = logging.getLogger("back")

_FAILED = 3
"""Exit status if a restart may help, in contrast to 1 (wrong settings) and argparse's 2."""


def main() -> None:
    """Draft until a signal arrives.

    Exits with status 1 if the settings must be changed, with 3 after other failures.
    """
    if sys.argv[1:2] == ["service"]:
        from back.os_service.back_service import main as serve  # noqa: PLC0415 - not needed to draft

        serve(sys.argv[2:])
    to_doctor = sys.argv[1:2] == ["doctor"]
    settings = (
        BackDoctorSettings.from_command_line(sys.argv[2:]) if to_doctor else BackSettings.from_command_line()
    )
    configure_logging(settings.log_level, as_json=settings.log_json)
    if settings.list_devices:
        from shared.diagnostics.preflight import list_devices  # noqa: PLC0415 - slow to import

        print_text(list_devices())
        return
    try:
        settings = settings.joined()
        if settings.check and not to_doctor:
            from back.check import check  # noqa: PLC0415 - slow to import, and not needed to draft

            exit_with(check(settings))
        if to_doctor:
            from lab.doctor.back_doctor import diagnose  # noqa: PLC0415 - as above

            exit_with(diagnose(settings))
        import_program("back.program").run(settings)  # as above, and not needed for --help
    except ConfigError as error:
        log.error("%s", error)  # noqa: TRY400 - a message for users needs no traceback
        sys.exit(1)
    except Exception:
        log.exception("drafting failed")
        sys.exit(_FAILED)
