"""A lead that has started prints its address."""

from types import SimpleNamespace

import pytest
from fastapi import FastAPI

from lead.server.listening import Address, listen
from lead.server.site import how_to_ask, wants_backs
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


@pytest.mark.parametrize(
    ("options", "connected", "has_joined", "expected"),
    [
        ({}, [], None, True),
        ({}, [], False, True),
        ({}, [], True, False),
        ({}, ["desk"], None, False),
        ({"back": "builtin"}, [], None, False),
        ({"draft_model": "builtin"}, [], None, False),
    ],
)
def test_backs_are_wanted_until_one_has_joined(options, connected, has_joined, expected):
    app = FastAPI()
    app.state.services = SimpleNamespace(backs=connected)
    if has_joined is not None:
        app.state.has_joined_backs = lambda: has_joined
    assert wants_backs(app, LeadSettings.from_options(**options)) is expected
