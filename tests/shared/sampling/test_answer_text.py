from dataclasses import replace

import pytest

from shared.sampling.answer_text import AnswerText
from shared.sampling.call_grammars import CallGrammars

CALLS = CallGrammars(r"<call>(?P<name>add|addition):", {}, reasoning=("<think>", "</think>"))
LISTED = replace(CALLS, begins=r"\[(?P<name>add)\(", follows=r",?\s*(?P<name>add)\(")


@pytest.fixture
def text():
    def text(written, calls=CALLS):
        text = AnswerText(calls)
        for character in written:
            text.append(character.encode())
        return text

    return text


def test_a_call_begins_with_the_piece_that_ends_its_beginning(text):
    assert text("Well: <call>add").begins_with(b': {"') == ("add", b' {"')
    assert text("Well: <call>add").begins_with(b"it") is None
    assert text("Well: <call>addition").begins_with(b":") == ("addition", b"")


def test_what_began_before_does_not_begin_again(text):
    assert text("<call>add: ").begins_with(b"1") is None


def test_no_call_begins_inside_reasoning(text):
    assert text("<think>maybe <call>add").begins_with(b":") is None
    assert text("<think>maybe</think><call>add").begins_with(b":") == ("add", b"")
    assert text("maybe <call>add", replace(CALLS, said=b"<think>")).begins_with(b":") is None


def test_a_call_without_a_mark_of_its_own_is_the_first_thing_in_the_content(text):
    calls = replace(CALLS, is_first=True)
    assert text("\n<call>add", calls).begins_with(b":")
    assert text("<think>hm</think>\n<call>add", calls).begins_with(b":")
    assert text("This is one: <call>add", calls).begins_with(b":") is None


def test_after_a_call_another_one_needs_no_mark(text):
    written = text("[add(1), add", LISTED)
    assert written.begins_with(b"(") is None
    assert written.begins_with(b"(", after=len("[add(1)")) == ("add", b"")


def test_the_prompt_may_end_with_the_beginning_of_a_call(text):
    assert text("dd", replace(CALLS, said=b"<call>a")).begins_with(b":") == ("add", b"")


def test_pieces_can_be_taken_back(text):
    written = text("<call>addition")
    written.keep(len("<call>add"))
    assert written.begins_with(b":") == ("add", b"")
    assert bytes(written) == b"<call>add"


def test_a_copy_goes_its_own_way(text):
    written = text("<call>")
    copy = written.copy()
    copy.append(b"add")
    assert copy.begins_with(b":")
    assert not written.begins_with(b":")


def test_bytes_that_are_no_text_are_read(text):
    written = text("<call>")
    written.append(b"\xff")
    assert written.begins_with(b"add:") is None
    written.append(b"<call>")
    assert written.begins_with(b"add:")
