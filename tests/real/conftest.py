import shutil

import pytest

from lab.parts.processes import start_lead
from tests.real.page_lead import ORIGIN, WIDE, visit
from tests.real.processes import LEAD

PATIENCE_MS = 120_000  # a machine that runs other tests, too, is slow


@pytest.fixture(scope="session")
def served(target):
    """(lead, url), for tests that do not change it."""
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


@pytest.fixture(params=[{}])
def context(browser, lead, request):
    """The context of a browser. It fails on any error in a page, and on requests to other servers."""
    wrong = []
    with browser.new_context(**{"viewport": WIDE, "accept_downloads": True} | request.param) as context:
        context.set_default_timeout(PATIENCE_MS)
        context.route("**/*", lead.route)
        context.on("weberror", lambda error: wrong.append(str(error.error)))
        context.on("request", lambda r: None if r.url.startswith((ORIGIN, "blob:")) else wrong.append(r.url))
        yield context
    assert wrong == []


@pytest.fixture
def page(context):
    return visit(context)
