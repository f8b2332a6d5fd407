"""One back drafts for two leads, one of which is killed and started again."""

from urllib.parse import urlsplit

import pytest

from lab.parts.processes import start_back, start_lead
from tests.real.client import ask, ask_until_accepted
from tests.real.processes import BACK, LEAD, kill

pytestmark = pytest.mark.real

SAMPLING = {"temperature": 0.8, "seed": 11}


@pytest.fixture
def leads(target):
    one, one_url = start_lead("--model", str(target), *LEAD)
    with one:
        two, two_url = start_lead("--model", str(target), *LEAD)
        with two:
            yield (one, one_url), (two, two_url)


def test_a_lead_that_dies_and_returns_costs_the_other_nothing(leads, target):
    (one, one_url), (two, two_url) = leads
    plain = ask(one_url, **SAMPLING).text
    with start_back(one_url, "--lead", two_url, *BACK) as back:
        for lead in (one, two):
            lead.wait_for("back .* joined")
        for url in (one_url, two_url):
            assert ask_until_accepted(url, **SAMPLING).text == plain
        kill(one)
        assert ask_until_accepted(two_url, **SAMPLING).text == plain
        again, url = start_lead("--model", str(target), "--port", str(urlsplit(one_url).port), *LEAD)
        with again:
            again.wait_for("back .* joined")
            assert url == one_url
            assert ask_until_accepted(one_url, **SAMPLING).text == plain
            assert ask_until_accepted(two_url, **SAMPLING).text == plain
        assert back.process.poll() is None
