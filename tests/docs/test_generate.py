"""What the documentation says of the code is what the code says of itself."""

import re

import pytest

from back.settings import BackSettings
from chat.settings import ChatSettings
from docs.generate.blocks import UnknownBlockError, fenced, fill, table
from docs.generate.pages import BLOCKS, DOCS, ROOT, files
from docs.generate.rule_of_thumb import MACHINES, best_depth, expected_tokens
from docs.generate.settings_tables import settings_tables
from lead.settings.lead_settings import LeadSettings

PROGRAMS = [LeadSettings, BackSettings, ChatSettings]
PAGE = "before\n<!-- begin word: written by `make docs` -->\nold\n<!-- end word -->\nafter\n"


def test_every_page_is_as_the_code_says():
    changed = [path.name for path, text in files().items() if path.read_text("utf-8") != text]
    assert changed == [], "run `make docs`"


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_stands_in_some_page(name):
    pages = [ROOT / "README.md", *DOCS.glob("*.md")]
    assert any(f"<!-- begin {name}: " in page.read_text("utf-8") for page in pages)


# Settings


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_tables_name_the_options_that_help_does(program, capsys):
    with pytest.raises(SystemExit):
        program.from_command_line(["--help"])
    lines = re.findall(r"^  (-.+?)(?:  |$)", capsys.readouterr().out, re.MULTILINE)
    helped = {word for line in lines for word in re.split(r"[ ,]+", line) if word.startswith("-")}
    named = set(re.findall(r"`(--?[a-z][^`]*)`", settings_tables(program)))
    assert helped - {"-h", "--help", "--version"} == named


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_tables_name_the_variable_of_every_setting_with_an_option(program):
    tables = settings_tables(program)
    prefix = program.prefix
    missing = {name for name in program.options() if f"`{prefix}{name.upper()}`" not in tables}
    assert missing <= {"pinned_certificate", "exit_with_stdin"}  # those are not for people


def test_other_programs_spellings_stand_beside_our_own():
    assert "| `--ctx-size`, `-c` | `LEAD_CTX_SIZE`, `LLAMA_ARG_CTX_SIZE` | `0` |" in settings_tables(
        LeadSettings
    )


def test_settings_stand_under_their_group():
    groups = settings_tables(BackSettings).split("### ")
    (drafting,) = (group for group in groups if group.startswith("back: drafting\n"))
    assert "`--lead`" in drafting
    assert "`--n-ahead`" in drafting
    assert "`--threads`" not in drafting


def test_a_star_in_a_meaning_is_a_star():
    assert r"(\*.name: all subdomains; \*: any)" in settings_tables(LeadSettings)


# The rule of thumb


def test_a_draft_token_that_is_always_right_counts_whole():
    assert expected_tokens(1.0, 4) == 5


def test_with_half_of_the_tokens_right_there_are_never_two_tokens_a_step():
    assert 1.99 < expected_tokens(0.5, 8) < 2


def test_nothing_is_drafted_where_a_step_of_two_costs_more_than_it_is_worth():
    (dear,) = (machine for machine in MACHINES if "q8_0" in machine.name)
    assert (best_depth(dear, 0.5), best_depth(dear, 0.9) > 0) == (0, True)


# Blocks


def test_a_block_is_renewed_and_the_rest_is_left_alone():
    filled = fill(PAGE, {"word": lambda: "new\n"})
    assert filled == PAGE.replace("old\n", "\nnew\n\n")
    assert fill(filled, {"word": lambda: "new"}) == filled


def test_a_block_without_a_generator_is_an_error():
    with pytest.raises(UnknownBlockError, match="'word'"):
        fill(PAGE, {})


def test_a_bar_in_a_cell_ends_no_cell():
    assert table(["a", "b"], [["1|2", "3"]]).splitlines()[-1] == "| 1\\|2 | 3 |"


def test_code_is_fenced():
    assert fenced("python", "x = 1\n\n") == "```python\nx = 1\n```"
