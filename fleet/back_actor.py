"""An actor that owns a `back` process, on whatever node Ray has room for it."""

import logging

from fleet.child_process import ChildProcess
from fleet.settings import FleetSettings

log = logging.getLogger("ray.serve")

_STOP_SECONDS = 5.0


class BackActor:
    """Drafts for one lead at a time."""

    def __init__(self, settings: FleetSettings, name: str) -> None:
        self._arguments = [*settings.arguments("back"), "--name", name]
        self._name = name
        self._back: ChildProcess | None = None

    def follow(self, lead: str) -> None:
        """Draft for the lead with this URL from now on."""
        if self._back:
            self._back.stop(_STOP_SECONDS)
        self._back = ChildProcess("back", "--lead", lead, *self._arguments)
        log.info("%s drafts for %s", self._name, lead)

    def is_drafting(self) -> bool:
        """Whether its process runs."""
        return self._back is not None and self._back.is_alive
