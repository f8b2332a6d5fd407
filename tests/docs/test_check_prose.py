"""The check finds sentences that docs/design/writing.md rules out, and no others."""

import pytest

from docs.check_prose import faults, prose, sentences

GOOD = [
    "A back drafts while the lead verifies.",
    "What is a draft?",
    "There is no second pass.",
    "Each of the slots has one of its own, and the model is no longer needed.",
    "Messages are JSON objects, as in docs/protocol.json.",
]
BAD = {
    "What was here already stays as it was.": "begin with the noun",
    "This file is no text file.": "write `not a`",
    "A member is let in no more.": "write `no longer`",
    "The lead reads those that fit.": "repeat the noun",
    "One fact; a second one; a third one.": "write two sentences",
    "The kv-cache is full.": "write 'KV cache', not 'kv-cache'",
    "word " * 26: "26 words",
}


@pytest.mark.parametrize("sentence", GOOD)
def test_plain_sentences_pass(sentence):
    assert list(faults(sentence)) == []


@pytest.mark.parametrize("sentence", BAD)
def test_a_ruled_out_sentence_is_found(sentence):
    assert list(faults(sentence)) == [BAD[sentence]]


def test_sentences_are_those_of_paragraphs_lists_and_tables_with_their_lines():
    page = (
        "# What it does\n\nSee http://one.example now. `Two` is\n[linked](a.md).\n\n"
        "* Three\n  goes on\n\n| four | five |\n"
    )
    assert [(line, text.strip()) for line, text in sentences(page) if text.strip()] == [
        *((3, "See Code now."), (3, "Code is linked."), (6, "Three goes on")),
        *((9, "four"), (9, "five")),
    ]


def test_code_and_generated_blocks_are_skipped():
    page = "```\nWhat. Ever.\n```\n\n<!-- begin x: written -->\nOne.\n<!-- end x -->\n\n<b>Two.</b>\n"
    assert [text for _, text in sentences(page)] == ["Two."]


def test_an_entry_for_an_argument_begins_a_sentence():
    assert [text for _, text in sentences("Wait. n_x, y: numbers. llama.cpp waits.")] == [
        *("Wait.", "n_x, y: numbers.", "llama.cpp waits."),
    ]


def test_docstrings_are_read(tmp_path):
    module = tmp_path / "module.py"
    module.write_text('"""One."""\n\n\ndef two():\n    """Three. Four."""\n')
    assert list(prose(module)) == [(1, "One."), (4, "Three."), (4, "Four.")]
