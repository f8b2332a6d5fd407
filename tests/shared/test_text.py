"""Only whole characters come out of bytes, and of a stop string nothing is shown."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.text import StopFinder, Utf8Decoder

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def split(whole, cuts):
    """The pieces of `whole` between the cuts."""
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    return [whole[start:end] for start, end in itertools.pairwise(places)]


cuts = st.lists(st.integers(0, 30), max_size=8)


# Utf8Decoder


def test_whole_characters_come_at_once():
    assert Utf8Decoder().push("aé€😀".encode()) == "aé€😀"


def test_a_split_character_comes_with_its_last_byte():
    decoder = Utf8Decoder()
    assert [decoder.push(bytes([byte])) for byte in "€".encode()] == ["", "", "€"]


def test_an_invalid_byte_becomes_a_replacement_character():
    assert Utf8Decoder().push(b"a\xffb") == f"a{REPLACEMENT}b"


def test_a_character_that_is_broken_off_by_another_becomes_a_replacement():
    decoder = Utf8Decoder()
    decoder.push(b"\xe2\x82")
    assert decoder.push(b"a") == f"{REPLACEMENT}a"


def test_a_character_that_was_never_completed_comes_out_at_the_end():
    decoder = Utf8Decoder()
    decoder.push(b"a\xe2\x82")
    assert decoder.flush() == REPLACEMENT


def test_after_whole_characters_nothing_is_left():
    decoder = Utf8Decoder()
    decoder.push(b"abc")
    assert decoder.flush() == ""


@given(st.text(max_size=20), cuts)
def test_text_comes_out_as_it_went_in_wherever_it_is_split(text, cuts):
    decoder = Utf8Decoder()
    pieces = [decoder.push(piece) for piece in split(text.encode(), cuts)]
    assert "".join(pieces) == text
    assert decoder.flush() == ""


@given(st.binary(max_size=20), cuts)
def test_any_bytes_give_the_same_text_wherever_they_are_split(data, cuts):
    decoder = Utf8Decoder()
    pieces = [decoder.push(piece) for piece in split(data, cuts)]
    assert "".join(pieces) + decoder.flush() == data.decode(errors="replace")


# StopFinder


def test_without_stops_nothing_is_held_back():
    assert StopFinder([]).push("text") == (0, None)


def test_an_empty_stop_string_stops_nothing():
    assert StopFinder([""]).push("text") == (0, None)


def test_a_stop_string_is_found():
    assert StopFinder(["END"]).push("abENDcd") == (5, "END")


def test_the_first_occurrence_counts():
    assert StopFinder(["b"]).push("abcb") == (3, "b")


def test_of_two_stops_the_earlier_counts():
    assert StopFinder(["c", "b"]).push("abcd") == (3, "b")


def test_of_two_stops_at_one_place_the_longer_counts():
    assert StopFinder(["b", "bc"]).push("abcd") == (3, "bc")


@pytest.mark.parametrize(("text", "n_held"), [("a", 0), ("aE", 1), ("aEN", 2), ("ENE", 1), ("aENx", 0)])
def test_a_possible_beginning_of_a_stop_string_is_held_back(text, n_held):
    assert StopFinder(["END"]).push(text) == (n_held, None)


def test_a_stop_string_is_found_across_pieces():
    finder = StopFinder(["END"])
    assert [finder.push(piece) for piece in ("aE", "N", "Db")] == [(1, None), (2, None), (4, "END")]


def test_what_was_held_back_in_vain_is_let_go():
    finder = StopFinder(["END"])
    finder.push("aEN")
    assert finder.push("x") == (0, None)


def test_a_stop_string_that_repeats_itself_is_found_at_its_first_place():
    finder = StopFinder(["aab"])
    assert finder.push("aa") == (2, None)
    assert finder.push("a") == (2, None)
    assert finder.push("b") == (3, "aab")


words = st.text("ab", max_size=12)
stops = st.lists(st.text("ab", max_size=4), max_size=3)


def first_stop(text, stops):
    """(start, stop) of the first in `text`, the longest of those at one place."""
    found = [(text.index(stop), -len(stop), stop) for stop in stops if stop and stop in text]
    start, _, stop = min(found, default=(len(text), 0, None))
    return start, stop


@given(words, stops, cuts)
def test_a_stop_is_found_as_soon_as_it_is_there(text, stops, cuts):
    finder, seen = StopFinder(stops), ""
    for piece in split(text, cuts):
        seen += piece
        n_held, stop = finder.push(piece)
        start, expected = first_stop(seen, stops)
        assert stop == expected
        if stop is not None:
            assert n_held == len(seen) - start
            return


@given(words, stops, cuts)
def test_exactly_what_may_begin_a_stop_is_held_back(text, stops, cuts):
    finder, seen = StopFinder(stops), ""
    for piece in split(text, cuts):
        seen += piece
        n_held, stop = finder.push(piece)
        if stop is not None:
            return
        beginnings = {stop[:n] for stop in stops for n in range(1, len(stop))}
        assert n_held == max((len(b) for b in beginnings if seen.endswith(b)), default=0)
