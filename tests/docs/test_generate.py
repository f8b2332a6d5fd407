"""The documentation agrees with the code's descriptions of itself."""

import re

import pytest

from back.settings import BackSettings
from chat.settings import ChatSettings
from docs.generate.blocks import fill
from docs.generate.pages import BLOCKS, DOCS, ROOT, files
from docs.generate.settings_tables import settings_tables
from lead.settings.lead_settings import LeadSettings

PROGRAMS = [LeadSettings, BackSettings, ChatSettings]


def test_every_page_is_as_the_code_says():
    changed = [path.name for path, text in files().items() if path.read_text("utf-8") != text]
    assert changed == [], "run `make docs`"


def test_every_block_stands_in_some_page():
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "README.md", *DOCS.glob("*.md")))
    assert [name for name in BLOCKS if f"<!-- begin {name}: " not in pages] == []


def test_what_is_written_by_hand_takes_less_than_125_kb():
    written = [fill(page.read_text("utf-8"), dict.fromkeys(BLOCKS, str)) for page in DOCS.rglob("*.md")]
    n_bytes = len("".join(written).encode())
    assert n_bytes <= 125 << 10, "shorten a page of docs/"


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_tables_name_the_options_that_help_does(program, capsys):
    with pytest.raises(SystemExit):
        program.from_command_line(["--help-all"])
    lines = re.findall(r"^  (-.+?)(?:  |$)", capsys.readouterr().out, re.MULTILINE)
    helped = {word for line in lines for word in re.split(r"[ ,]+", line) if word.startswith("-")}
    named = set(re.findall(r"`(--?[a-z][^`]*)`", settings_tables(program)))
    assert helped - {"-h", "--help", "--help-all", "--version"} == named


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_tables_name_the_variable_of_every_setting_with_an_option(program):
    tables = settings_tables(program)
    prefix = program.prefix
    missing = {name for name in program.options() if f"`{prefix}{name.upper()}`" not in tables}
    assert missing <= {"pinned_certificate_file"}  # that is not for people
