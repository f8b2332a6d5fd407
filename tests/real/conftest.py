import pytest

from bench.processes import start_lead
from tests.real.processes import LEAD


@pytest.fixture(scope="session")
def served(target):
    """(lead, url), for tests that leave it as it was."""
    lead, url = start_lead("--model", str(target), *LEAD)
    with lead:
        yield lead, url


@pytest.fixture
def own_lead(target):
    """Starts leads that belong to one test: (lead, url)."""
    leads = []

    def start(*arguments):
        lead, url = start_lead("--model", str(target), *LEAD, *arguments)
        leads.append(lead)
        return lead, url

    yield start
    for lead in leads:
        lead.stop()
