"""`back service`: installs a back with the given options to run at every start of the machine."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NoReturn

from back.settings import BackSettings
from shared.exits import exiting_in_words
from shared.os_service.service_program import ServiceOptions, serve_as
from shared.os_service.systemd_unit import ServiceFacts

_STOP_SECONDS = 15.0
_MAX_FILES = 1024


class BackServiceSettings(BackSettings):
    """Run a back as a service. It starts now, and again after failures and after each start of the machine.

        back service install --model 1B.gguf --join CODE
        sudo /opt/llama-duo/bin/back service install --system --model /srv/1B.gguf --lead http://host:5555
        back service status
        back service remove

    The service uses the options, variables and --config of `back`. They are written to a file that only its
    owner can read. A second `install` replaces all of them.
    """

    program = "back service"
    headings: ClassVar = {"action": "service", **BackSettings.headings}

    service: ServiceOptions = ServiceOptions()


def main(arguments: Sequence[str]) -> NoReturn:
    """Install, remove or show the service. Exits with status 1 and a message after a failure."""
    settings = BackServiceSettings.from_command_line(arguments)
    given = dict(BackServiceSettings.sources(arguments).read())
    if settings.service.action == "install" and not settings.service.dry_run:
        with exiting_in_words(settings.program):
            given = _with_joined_lead(given, settings.joined(), is_system=settings.service.system)
    serve_as(settings.service, BackServiceSettings, given, ServiceFacts("back", _STOP_SECONDS, _MAX_FILES))


def _with_joined_lead(
    given: Mapping[str, object], settings: BackSettings, *, is_system: bool
) -> dict[str, object]:
    """Return the given options without the code, which works only once.

    A system service gets the joined lead's address and key instead, because it runs as another user. A
    service of the user finds the lead by itself.
    """
    others = {name: value for name, value in given.items() if name != "join"}
    if settings.pinned_certificate_file is None or not is_system:
        return others
    found = {
        "lead": settings.url,
        "key": settings.read_key(),
        "pinned_certificate_file": settings.pinned_certificate_file,
    }
    return others | found
