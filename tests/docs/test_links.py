"""Every relative link in a page leads to a file, and to a heading if it names one."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "docker/*.md", "deploy/**/*.md", "models/*.md")
    for path in ROOT.glob(pattern)
)
TARGET = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"\s]+)\"")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def links(page):
    text = FENCE.sub("", (ROOT / page).read_text("utf-8"))
    found = [first or second for first, second in TARGET.findall(text)]
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(path):
    """The headings as GitHub makes fragments of them."""
    text = FENCE.sub("", path.read_text("utf-8"))
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    for link in links(page):
        file, _, fragment = unquote(link).partition("#")
        target = ((ROOT / page).parent / file).resolve() if file else ROOT / page
        assert target.exists(), link
        if fragment and target.suffix == ".md":
            assert fragment in anchors(target), link


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_the_readme_leads_to_every_page(page):
    assert f"docs/{page.name}" in links("README.md")
