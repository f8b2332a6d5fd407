"""A machine with systemd, as far as `service` sees it."""

import json
import os
import sys
from pathlib import Path

import pytest

from back.os_service import back_service
from lead.os_service import lead_service
from shared.os_service import service_program
from shared.os_service.service_program import ServicePlaces

FAKE = Path(__file__).with_name("systemctl.py")
MAIN = {"lead": lead_service.main, "back": back_service.main}


class Machine:
    def __init__(self, folder, monkeypatch):
        self.units, self.settings = folder / "units", folder / "settings"
        self._state = folder / "state"
        self._monkeypatch = monkeypatch
        (folder / "bin").mkdir()
        self.systemctl = folder / "bin" / "systemctl"
        self.systemctl.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
        self.systemctl.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_UNITS", str(self.units))
        monkeypatch.setenv("FAKE_STATE", str(self._state))
        monkeypatch.setattr(ServicePlaces, "of", lambda **_: ServicePlaces(self.units, self.settings))
        monkeypatch.setattr(service_program, "_NO_HOME", (folder / "home",))

    @property
    def state(self):
        return json.loads(self._state.read_text())

    def trouble(self, kind):
        self._monkeypatch.setenv("FAKE_TROUBLE", kind)

    def files(self):
        return {path.name for folder in (self.units, self.settings) for path in folder.glob("*")}

    def run(self, program, *arguments):
        """The status or message with which `PROGRAM service` ends."""
        with pytest.raises(SystemExit) as ended:
            MAIN[program]([str(each) for each in arguments])
        return ended.value.code


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)
