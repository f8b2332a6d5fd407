"""A lead that has started prints its address."""

import pytest

from lead.server.listening import Address, listen
from lead.server.site import how_to_ask
from lead.settings.lead_settings import LeadSettings


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "open http://127.0.0.1:{0}/ in a browser; OpenAI's API: http://127.0.0.1:{0}/v1"),
        ({"ui": False}, "OpenAI's API: http://127.0.0.1:{0}/v1"),
    ],
)
def test_it_is_said_where_the_page_and_the_api_are(options, said):
    with listen("127.0.0.1", 0) as listener:
        address = Address(listener)
        assert how_to_ask(LeadSettings.from_options(**options), address) == said.format(address.port)
