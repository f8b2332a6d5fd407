import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from docs.generate.blocks import fill
from docs.generate.pages import BLOCKS

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
    """The fragments that GitHub makes of the headings."""
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


def test_the_readme_leads_to_every_page():
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= set(links("README.md"))


# Files that docs/map.md names

MAP = (ROOT / "docs" / "map.md").read_text("utf-8")
FILES = {
    path.relative_to(ROOT).as_posix()
    for package in ("lead", "back", "chat", "fleet", "shared", "lab", "bench", "tests")
    for path in (ROOT / package).rglob("*")
    if path.is_file()
}


def test_every_path_in_the_map_leads_to_a_file_or_folder():
    paths = set(re.findall(r"`([\w/]+(?:\.py|/))`", MAP))
    files = [f"/{file}" for file in FILES]
    missing = [
        path
        for path in sorted(paths)
        if not (ROOT / path).is_dir() and not any(file.endswith(f"/{path}") for file in files)
    ]
    assert missing == []


def test_every_folder_of_a_program_is_in_the_map():
    folders = {path.parent for path in (ROOT / "lead").glob("*/*.py")}
    assert [each.name for each in folders if f"`lead/{each.name}/`" not in MAP] == []


def test_what_a_newcomer_reads_takes_less_than_12_kb():
    """The table of folders does not count: each new folder adds a line."""
    map_page = fill(MAP, dict.fromkeys(BLOCKS, str))
    n_bytes = len((map_page + (ROOT / "CONTRIBUTING.md").read_text("utf-8")).encode())
    assert n_bytes <= 12 << 10, "shorten CONTRIBUTING.md or docs/map.md"


# Pages about one idea each, and that of failures

DESIGN = sorted((ROOT / "docs" / "design").glob("*.md"))
DEFINITION = re.compile(r"^\s*(?:(?:async )?(?:class|def) (\w+)|(?:self\.)?(\w+)(?:: .+)? = )", re.MULTILINE)


@pytest.fixture(scope="module")
def defined():
    """The names of all files, classes, functions and assigned variables."""
    names = {file.rpartition("/")[2] for file in FILES}
    for file in FILES:
        if file.endswith(".py"):
            found = DEFINITION.findall((ROOT / file).read_text("utf-8"))
            names.update(first or second for first, second in found)
    return names


@pytest.mark.parametrize("page", [*DESIGN, ROOT / "docs" / "failures.md"], ids=lambda page: page.name)
def test_the_code_has_what_the_page_names(page, defined):
    quoted = re.findall(r"`([^`\n]+)`", FENCE.sub("", page.read_text("utf-8")))
    files = [name for name in quoted if name.endswith(".py")]
    dotted = [name for name in quoted if re.fullmatch(r"[A-Z]\w*[a-z]\w*(\.\w+)*", name)]
    assert {*files, *(part for name in dotted for part in name.split("."))} <= defined


@pytest.mark.parametrize("page", DESIGN, ids=lambda page: page.name)
def test_an_idea_takes_less_than_8_kb_and_is_drawn(page):
    text = page.read_text("utf-8")
    assert len(text.encode()) <= 8 << 10
    assert FENCE.search(text)
