import shutil

import pytest

from lab.parts.processes import start_lead
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


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("no chromium (Debian: apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox"],  # it needs more than a container's root has
        )
        yield browser
        browser.close()
