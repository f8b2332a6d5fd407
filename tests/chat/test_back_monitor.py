import pytest

from chat.back_monitor import BackMonitor
from chat.errors import IncompleteAnswerError, RejectedError, UnreachableError
from shared.diagnostics.lead_probe import BackReport


@pytest.mark.parametrize(
    ("seen", "words", "during", "again"),
    [
        ([BackReport(name="attic")], "1 back", "1 back", True),
        ([], "0 backs", "0 backs", True),
        (None, "", "", False),
        (UnreachableError("gone"), "the server is unreachable", "the server accepts no new requests", True),
        (IncompleteAnswerError("what?"), "backs unknown", "backs unknown", True),
        (RejectedError("no", 403, "no"), "", "", False),
    ],
)
def test_the_status_describes_the_last_poll(seen, words, during, again):
    """A server is not called unreachable while it answers."""

    def look():
        if isinstance(seen, Exception):
            raise seen
        return seen

    monitor = BackMonitor(look)
    assert (monitor.poll(), monitor.status, monitor.status_during_an_answer) == (again, words, during)


def test_polling_stops_if_the_server_does_not_speculate():
    seen = iter([[], None])
    monitor = BackMonitor(lambda: next(seen), interval_s=0)
    with monitor:
        monitor._thread.join()
    assert next(seen, "all seen") == "all seen"
