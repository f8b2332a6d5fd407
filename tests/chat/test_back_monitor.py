"""The monitor says in words who is there, and stops where there is nothing to see."""

import pytest

from chat.back_monitor import BackMonitor
from chat.errors import IncompleteAnswerError, RejectedError, UnreachableError
from chat.wire import Back


@pytest.mark.parametrize(
    ("seen", "words", "again"),
    [
        ([Back(name="attic")], "1 back", True),
        ([], "0 backs", True),
        (None, "", False),
        (UnreachableError("gone"), "the server is unreachable", True),
        (IncompleteAnswerError("what?"), "backs unknown", True),
        (RejectedError("no", 403, "no"), "", False),
    ],
)
def test_what_was_seen_is_said(seen, words, again):
    def look():
        if isinstance(seen, Exception):
            raise seen
        return seen

    monitor = BackMonitor(look)
    assert (monitor.poll(), monitor.status) == (again, words)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (UnreachableError("refused"), "the server accepts no new requests"),
        (IncompleteAnswerError("what?"), "backs unknown"),
    ],
)
def test_a_server_whose_answer_comes_is_not_called_away(seen, words):
    def look():
        raise seen

    monitor = BackMonitor(look)
    monitor.poll()
    assert monitor.status_during_an_answer == words


def test_it_looks_in_the_background_until_there_is_nothing_to_see():
    seen = iter([[], None])
    monitor = BackMonitor(lambda: next(seen), interval_s=0)
    with monitor:
        monitor._thread.join()
    assert next(seen, "all seen") == "all seen"
