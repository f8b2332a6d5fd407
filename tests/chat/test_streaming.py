"""The time that a client waits for a server that is not ready. test_repl.py has whole sessions that wait."""

from chat.streaming import LONGEST_DELAY_S, N_RETRIES, retry_delay
from shared.errors import ConfigError
from tests.chat.fakes import URL, Session, answers, is_away


def test_delays_double_from_a_second_up_to_a_limit_and_end():
    assert [retry_delay(n, None) for n in range(N_RETRIES + 1)] == [1, 2, 4, 8, 16, LONGEST_DELAY_S, None]
    assert [retry_delay(0, retry_after) for retry_after in (0.0, 5.0, 1e9)] == [0.0, 5.0, LONGEST_DELAY_S]


def test_a_lead_that_has_another_address_now_is_asked_there():
    session = Session(is_away, answers("Hello."))
    session.type("Hi", locate=lambda: ("https://10.0.0.2:5556", None))
    assert [str(request.url) for request in session.lead.requests] == [
        f"{URL}/v1/chat/completions",
        "https://10.0.0.2:5556/v1/chat/completions",
    ]


def test_a_lead_that_cannot_be_looked_for_is_asked_where_it_was():
    def locate():
        raise ConfigError("cannot read the joined lead")

    session = Session(is_away, answers("Hello."))
    assert "Hello." in session.type("Hi", locate=locate)
