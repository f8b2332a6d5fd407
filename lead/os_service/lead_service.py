"""`lead service`: installs a lead with the given options to run at every start of the machine."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field
from pydantic_settings import CliToggleFlag

from lead.settings.lead_settings import LeadSettings
from shared.os_service.service_program import ServiceOptions, serve_as
from shared.os_service.systemd_unit import ServiceFacts

_END_SECONDS = 45.0
"""The time that the lead gets to end after the drain. The lead ends itself within 30 s."""
_MAX_FILES = 16_384
"""The number of descriptors that the lead uses; beyond it, a new connection replaces an idle one
(`shared.descriptors`).
"""


class LeadServiceSettings(LeadSettings):
    """Run the lead as a service. It starts now, after failures and after each start of the machine.

        lead service install --model 70B.gguf --host 0.0.0.0 --keys-file keys
        sudo /opt/llama-duo/bin/lead service install --system --model /srv/70B.gguf
        lead service status
        lead service remove

    The service uses the options, variables and --config of `lead`. They are written to a file that only its
    owner can read. A second `install` replaces all of them.
    """

    program = "lead service"
    headings: ClassVar = {"action": "service", **LeadSettings.headings}

    service: ServiceOptions = ServiceOptions()
    socket: CliToggleFlag[bool] = Field(
        False,
        description="let systemd listen on --host and --port. The port stays open while the lead restarts, "
        "and new connections wait",
    )


def main(arguments: Sequence[str]) -> None:
    """Install, remove or show the service. Exits with status 1 and a message on failure."""
    settings = LeadServiceSettings.from_command_line(arguments)
    given = LeadServiceSettings.sources(arguments).read()
    given.pop("socket", None)
    facts = ServiceFacts(
        "lead",
        settings.drain_notice_seconds + settings.drain_seconds + _END_SECONDS,
        _MAX_FILES,
        has_engine=True,
        listen=(settings.host, settings.port) if settings.socket else None,
    )
    serve_as(settings.service, LeadServiceSettings, given, facts)
