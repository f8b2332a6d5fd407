"""The watch says in words who is there, and stops where there is nothing to see."""

import pytest

from chat.errors import AwayError, BrokenOffError, RefusedError
from chat.watch import Watch
from chat.wire import Back


@pytest.mark.parametrize(
    ("seen", "words", "again"),
    [
        ([Back(name="attic")], "1 back", True),
        ([], "0 backs", True),
        (None, "", False),
        (AwayError("gone"), "the server is away", True),
        (BrokenOffError("what?"), "backs unknown", True),
        (RefusedError("no", 403, "no"), "", False),
    ],
)
def test_what_was_seen_is_said(seen, words, again):
    def look():
        if isinstance(seen, Exception):
            raise seen
        return seen

    watch = Watch(look)
    assert (watch.look(), watch.words) == (again, words)


@pytest.mark.parametrize(
    ("seen", "words"),
    [(AwayError("refused"), "the server takes no new requests"), (BrokenOffError("what?"), "backs unknown")],
)
def test_a_server_whose_answer_comes_is_not_called_away(seen, words):
    def look():
        raise seen

    watch = Watch(look)
    watch.look()
    assert watch.words_beside_an_answer == words


def test_it_looks_in_the_background_until_there_is_nothing_to_see():
    seen = iter([[], None])
    watch = Watch(lambda: next(seen), interval_s=0)
    with watch:
        watch._thread.join()
    assert next(seen, "all seen") == "all seen"
