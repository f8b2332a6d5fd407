"""`back service`: a back at every start of the machine, with the options that follow."""

from collections.abc import Sequence
from typing import ClassVar, NoReturn

from back.settings import BackSettings
from shared.service.service_program import ServiceOptions, serve_as
from shared.service.systemd_unit import ServiceFacts

_STOP_SECONDS = 15.0
_MOST_FILES = 1024


class BackServiceSettings(BackSettings):
    """Run a back as a service: now, after failures and after the machine has started.

        back service install --model 1B.gguf --lead https://host:5555 --key-file back.key --ca-file tls.pem
        sudo /opt/llama-duo/bin/back service install --system --model /srv/1B.gguf --lead http://host:5555
        back service status
        back service remove

    All options of `back` apply, and so do its variables and --config: they are written to a file that only
    its owner can read. `install` again replaces them all.
    """

    program = "back service"
    headings: ClassVar = {"action": "service", **BackSettings.headings}

    service: ServiceOptions = ServiceOptions()


def main(arguments: Sequence[str]) -> NoReturn:
    """Exits with status 1 and a sentence if it cannot be done."""
    settings = BackServiceSettings.from_command_line(arguments)
    given = BackServiceSettings.sources(arguments).read()
    serve_as(settings.service, BackServiceSettings, given, ServiceFacts("back", _STOP_SECONDS, _MOST_FILES))
