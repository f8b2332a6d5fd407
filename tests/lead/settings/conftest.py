"""Fixtures for tests of the options."""

import pytest

from lead.settings.lead_settings import LeadSettings


@pytest.fixture
def refused(capsys):
    """The error message for a command line that is refused."""

    def refused(*arguments):
        with pytest.raises(SystemExit):
            LeadSettings.from_command_line(list(arguments))
        return capsys.readouterr().err

    return refused
