"""What tests of the options share."""

import pytest

from lead.settings.lead_settings import LeadSettings


@pytest.fixture
def refused(capsys):
    """What is said of a command line that is refused."""

    def refused(*arguments):
        with pytest.raises(SystemExit):
            LeadSettings.from_command_line(list(arguments))
        return capsys.readouterr().err

    return refused
