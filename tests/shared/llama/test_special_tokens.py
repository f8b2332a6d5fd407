import random

import llama_cpp
import pytest

from shared.llama.special_tokens import SpecialToken, SpecialTokens

START, END, TABLE, SPACES = 1, 2, 3, 4
SPECIAL = SpecialTokens(
    [
        SpecialToken(START, "<|start|>", control=True),
        SpecialToken(END, "<|end|>", control=True, strips_right=True),
        SpecialToken(TABLE, "<table>", control=False, strips_left=True),
        SpecialToken(SPACES, "  ", control=False),
    ]
)


def test_control_tokens_are_text_where_they_are_not_wanted():
    assert SPECIAL.split("<|start|>a<table>", control=False) == ["<|start|>a", TABLE]


def test_a_token_swallows_white_space_beside_it():
    assert SPECIAL.split("a \n<table>b<|end|> \n\tc", control=True) == ["a", TABLE, "b", END, "c"]


def test_the_longest_token_wins_also_over_one_that_begins_before_it():
    tokens = SpecialTokens([SpecialToken(1, "ab", control=True), SpecialToken(2, "bcd", control=True)])
    assert tokens.split("abcd", control=True) == ["a", 2]


def test_a_control_token_with_a_break_inside_is_text():
    text = "<|start|>hi<|start|>"
    assert SPECIAL.split(text, control=True, breaks=[12]) == [START, "hi<|start|>"]


@pytest.mark.parametrize("position", [0, 9])
def test_a_break_beside_a_control_token_leaves_it(position):
    assert SPECIAL.split("<|start|>", control=True, breaks=[position]) == [START]


def test_a_break_does_not_concern_user_defined_tokens():
    assert SPECIAL.split("<table>", control=True, breaks=[3]) == [TABLE]


def test_a_token_without_text_is_never_found():
    assert SpecialTokens([SpecialToken(1, "", control=True)]).split("a", control=True) == ["a"]


def test_a_hundred_thousand_occurrences_are_all_found():
    parts = SPECIAL.split("<|start|>x" * 100_000, control=True)
    assert (parts[:2], len(parts)) == ([START, "x"], 200_000)


def native(vocabulary, text, **options):
    data = text.encode()
    buffer = (llama_cpp.llama_token * (len(data) + 8))()
    n = llama_cpp.llama_tokenize(vocabulary.native, data, len(data), buffer, len(buffer), *options.values())
    return list(buffer[:n])


@pytest.mark.parametrize("add_special", [True, False])
@pytest.mark.parametrize("parse_special", [True, False])
def test_tokens_are_those_of_llama_cpp(vocabulary, add_special, parse_special):
    options = {"add_special": add_special, "parse_special": parse_special}
    parts = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "end|>", *"<| ", "\n\n", "fox", "日本"]
    draw = random.Random(3)
    for _ in range(200):
        text = "".join(draw.choices(parts, k=draw.randint(0, 9)))
        assert vocabulary.tokenize(text, **options) == native(vocabulary, text, **options)
