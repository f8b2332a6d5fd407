"""The assembler: certain text at once, uncertain text not at all, each piece with its token."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lead.engine.events import Committed
from lead.engine_client.assembler import Assembler, StopFinder, TextToken

PIECES = [b"a", b"b", b"ab", b"", b"\xe2", b"\x82", b"\xac", b"\xff", b"E", b"ND", b"\xe2\x82\xac", b"ENDx"]
A, B, AB, NOTHING, EURO_1, EURO_2, EURO_3, _BAD, E, ND, EURO, ENDX = range(len(PIECES))


def step(tokens, n_accepted=0, source=None):
    return Committed(
        sequence="s", start=0, tokens=tokens, n_accepted=n_accepted, sources=[source] * n_accepted
    )


def assembler(*stops):
    return Assembler(PIECES.__getitem__, stops)


def text_of(tokens):
    return "".join(token.text for token in tokens)


def test_each_piece_comes_with_its_token():
    assert assembler().push(step([A, AB])) == [TextToken(A, "a", None), TextToken(AB, "ab", None)]


def test_accepted_tokens_name_their_source():
    pushed = assembler().push(step([A, B, A], n_accepted=2, source="back"))
    assert [token.source for token in pushed] == ["back", "back", None]


def test_what_waited_in_vain_comes_with_what_follows():
    assembled = assembler("END")
    assembled.push(step([E]))
    assert assembled.push(step([A])) == [TextToken(E, "E", None), TextToken(A, "a", None)]


def test_a_token_waits_whole():
    assert assembler("bx").push(step([AB])) == []


def test_the_text_before_a_stop_inside_a_token_comes_out():
    assembled = assembler("bE")
    assert assembled.push(step([AB, E])) == [TextToken(AB, "a", None)]


def test_the_parts_of_a_character_before_a_stop_string_all_come_out():
    released = assembler("E€a", "b").push(step([E, EURO_1, EURO_2, EURO_3, B]))
    assert [token.token for token in released] == [E, EURO_1, EURO_2, EURO_3]


def test_tokens_after_the_stop_string_do_not_count():
    assembled = assembler("END")
    assembled.push(step([A, ENDX, B, B]))
    assert assembled.n_tokens == 2


def test_all_tokens_count_without_a_stop():
    assembled = assembler()
    assembled.push(step([A, NOTHING, EURO_1]))
    assert assembled.n_tokens == 3


tokens = st.lists(st.integers(0, len(PIECES) - 1), max_size=12)
stops = st.lists(st.sampled_from(["END", "abaE", "aE", "€a", "b"]), max_size=2)


def assembled_in(sizes, tokens, stops):
    """The assembled pieces if the tokens arrive in steps of these sizes, and the rest in one step."""
    assembled, rest, out = assembler(*stops), list(tokens), []
    for size in [*sizes, len(rest)]:
        out += assembled.push(step(rest[:size]))
        rest = rest[size:]
    return [*out, *assembled.finish()], assembled


@given(tokens, stops, st.lists(st.integers(1, 4), max_size=8))
def test_the_steps_change_nothing(tokens, stops, sizes):
    stepwise, ours = assembled_in(sizes, tokens, stops)
    at_once, theirs = assembled_in([], tokens, stops)
    assert stepwise == at_once
    assert (ours.stop, ours.n_tokens) == (theirs.stop, theirs.n_tokens)


@given(tokens)
def test_without_stops_the_text_is_that_of_all_bytes(tokens):
    out, _ = assembled_in([1] * 12, tokens, [])
    assert text_of(out) == b"".join(PIECES[token] for token in tokens).decode(errors="replace")


@given(tokens, st.sampled_from(["END", "ab", "aE", "€a", "abaE"]))
def test_with_a_stop_the_text_ends_before_it(tokens, stop):
    out, assembled = assembled_in([1] * 12, tokens, [stop])
    whole = b"".join(PIECES[token] for token in tokens).decode(errors="replace")
    assert text_of(out) == whole.partition(stop)[0]
    assert assembled.stop == (stop if stop in whole else None)


@given(tokens, stops)
def test_what_came_out_is_never_taken_back(tokens, stops):
    final, _ = assembled_in([1] * 12, tokens, stops)
    assembled, so_far = assembler(*stops), ""
    for token in tokens:
        so_far += text_of(assembled.push(step([token])))
        assert text_of(final).startswith(so_far)


# The stop finder


def split(whole, cuts):
    """The pieces of `whole` between the cuts."""
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    return [whole[start:end] for start, end in itertools.pairwise(places)]


cuts = st.lists(st.integers(0, 30), max_size=8)


words = st.text("ab", max_size=12)
stops = st.lists(st.text("ab", max_size=4), max_size=3)


def first_stop(text, stops):
    """(start, stop) of the first stop string in `text`; the longest if several begin there."""
    found = [(text.index(stop), -len(stop), stop) for stop in stops if stop and stop in text]
    start, _, stop = min(found, default=(len(text), 0, None))
    return start, stop


@given(words, stops, cuts)
def test_a_stop_is_found_as_soon_as_it_is_there_and_exactly_what_may_begin_it_is_held_back(text, stops, cuts):
    finder, seen = StopFinder(stops), ""
    beginnings = {stop[:n] for stop in stops for n in range(1, len(stop))}
    for piece in split(text, cuts):
        seen += piece
        n_held, stop = finder.push(piece)
        start, expected = first_stop(seen, stops)
        assert stop == expected
        if stop is not None:
            assert n_held == len(seen) - start
            return
        assert n_held == max((len(b) for b in beginnings if seen.endswith(b)), default=0)
