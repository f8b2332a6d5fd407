"""The last line of the log says whether the back is connected."""

import pytest

from back.connection_log import ConnectionLog

URL = "ws://lead/"
CONNECTED = "drafting for ws://lead/ as b"


@pytest.fixture
def log(caplog):
    caplog.set_level("INFO", "back")
    return ConnectionLog(URL)


def flap(log, n):
    for _ in range(n):
        log.connected("b")
        log.lost("closed")


def test_a_connection_is_reported(log, caplog):
    log.connected("b")
    assert caplog.messages == [CONNECTED]


def test_a_lost_connection_is_reported(log, caplog):
    log.connected("b")
    log.stable()
    log.lost("closed")
    assert caplog.messages[1:] == ["lost the connection to the lead at ws://lead/ (closed): reconnecting"]


def test_a_quick_reconnection_is_reported(log, caplog):
    flap(log, 1)
    log.connected("b")
    assert caplog.messages[-1] == CONNECTED


def test_a_lead_that_stays_unreachable_is_reported_once(log, caplog):
    for _ in range(5):
        log.unreachable("refused")
    assert caplog.messages == ["no lead at ws://lead/ (refused): trying again until there is one"]


def test_a_lead_that_becomes_unreachable_after_a_connection_is_reported(log, caplog):
    log.connected("b")
    log.lost("closed")
    log.unreachable("refused")
    assert caplog.messages[-1].startswith("no lead at ws://lead/ (refused)")


def test_a_lead_that_keeps_closing_the_connection_does_not_fill_the_log(log, caplog):
    flap(log, 100)
    assert len(caplog.messages) == 6
    assert caplog.messages[-1] == (
        "the connection to the lead at ws://lead/ keeps breaking (closed): reconnecting; "
        "the next message follows once it has lasted 10 s"
    )


def test_a_lead_that_restarts_in_a_loop_does_not_fill_the_log(log, caplog):
    for _ in range(100):
        flap(log, 1)
        log.unreachable("refused")
    assert len(caplog.messages) == 8
    assert "keeps breaking" in caplog.messages[-1]


def test_a_stable_connection_to_a_lead_that_kept_closing_it_is_reported(log, caplog):
    flap(log, 10)
    log.connected("b")
    n_before = len(caplog.messages)
    log.stable()
    assert caplog.messages[n_before:] == [CONNECTED]


def test_after_a_stable_connection_each_change_is_reported_again(log, caplog):
    flap(log, 10)
    log.connected("b")
    log.stable()
    n_before = len(caplog.messages)
    log.lost("closed")
    log.connected("b")
    assert len(caplog.messages) == n_before + 2


def test_a_stable_connection_is_reported_once(log, caplog):
    log.connected("b")
    log.stable()
    assert caplog.messages == [CONNECTED]
